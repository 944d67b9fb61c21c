//! Writes a lowered call, token by token, at the place of the clause that it stands for.

use sqlparser::tokenizer::{Span as TextSpan, Token, TokenWithSpan};

pub(super) fn at(token: Token, span: TextSpan) -> TokenWithSpan {
    TokenWithSpan { token, span }
}

/// A lowered call being written: `TABLE(name((SELECT * FROM relation), argument, …))`.
pub(super) struct Call<'a> {
    pub(super) output: &'a mut Vec<TokenWithSpan>,
    span: TextSpan,
}

impl<'a> Call<'a> {
    pub(super) fn open(output: &'a mut Vec<TokenWithSpan>, name: &str, span: TextSpan) -> Self {
        let mut call = Self { output, span };
        call.push(Token::make_keyword("TABLE"));
        call.push(Token::LParen);
        call.push(Token::make_word(name, None));
        call.push(Token::LParen);
        call.push(Token::LParen);
        call.push(Token::make_keyword("SELECT"));
        call.push(Token::Mul);
        call.push(Token::make_keyword("FROM"));
        call
    }

    fn push(&mut self, token: Token) {
        self.output.push(at(token, self.span));
    }

    /// Closes the parenthesis around the relation.
    pub(super) fn end_relation(&mut self) {
        self.push(Token::RParen);
    }

    /// The place of the clause, as two numbers.
    pub(super) fn place(&mut self) {
        let start = self.span.start;
        for number in [start.line, start.column] {
            self.push(Token::Comma);
            self.push(Token::Number(number.to_string(), false));
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.push(Token::Comma);
        self.push(Token::SingleQuotedString(text.to_owned()));
    }

    pub(super) fn argument(&mut self, tokens: Vec<TokenWithSpan>) {
        self.push(Token::Comma);
        self.output.extend(tokens);
    }

    pub(super) fn close(mut self) {
        self.push(Token::RParen);
        self.push(Token::RParen);
    }
}
