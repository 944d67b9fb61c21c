//! The WATERMARK clause: which `DELAY` belongs to it, its expression, and the relation before it.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span as TextSpan, Token, TokenWithSpan};

use super::call::{Call, at};
use super::lowering::Lowering;
use super::names::{begins_relation, calls, ends_clause, name_start, names_expression};
use super::{WATERMARK_CALL, syntax};
use crate::error::Refusal;
use crate::sql::tokens::{as_word, is, opening};

impl Lowering {
    /// Index of the `DELAY` that belongs to the `WATERMARK` at `from`.
    pub(super) fn delay(&self, from: usize) -> Option<usize> {
        self.delays.get(from).copied().flatten()
    }

    /// Finds the `DELAY` of every `WATERMARK`, from the last to the first: each may need those behind it.
    pub(super) fn find_delays(&mut self) {
        self.delays = vec![None; self.input.len()];
        for at in (0..self.input.len()).rev() {
            if is(self.input.get(at), "WATERMARK") {
                let delay = self.search_delay(at);
                if let Some(slot) = self.delays.get_mut(at) {
                    *slot = delay;
                }
            }
        }
    }

    fn search_delay(&self, from: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for at in from + 1..self.input.len() {
            let token = self.input.get(at);
            match token.map(|token| &token.token)? {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.checked_sub(1)?,
                Token::Comma | Token::SemiColon if depth == 0 => return None,
                _ if depth > 0 => {}
                Token::Word(word) if word.quote_style.is_none() => {
                    let next = self.input.get(at + 1);
                    if is(token, "DELAY") && (is(next, "OF") || is(next, "INTERVAL")) {
                        return Some(at);
                    }
                    if ends_clause(word.keyword)
                        || is(token, "WATERMARK") && self.delay(at).is_some() && at > from + 1
                    {
                        return None;
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Whether the `WATERMARK` here opens the clause.
    pub(super) fn opens_clause(&self) -> Result<bool, Refusal> {
        if self.delay(self.at).is_some() {
            return Ok(true);
        }
        // An alias cannot be followed by another name: this was meant as the clause.
        let next = self.input.get(self.at + 1);
        let meant = next
            .and_then(|token| as_word(&token.token))
            .is_some_and(|word| word.keyword == Keyword::NoKeyword && !is(next, "STREAM"));
        if meant {
            return Err(syntax(
                self.input.get(self.at),
                "This WATERMARK has no delay.",
                "write WATERMARK column DELAY OF INTERVAL 10 MINUTES",
            ));
        }
        Ok(false)
    }

    /// `WATERMARK expr [[AS] name] DELAY OF INTERVAL literal`, with the relation before it.
    pub(super) fn watermark(&mut self) -> Result<(), Refusal> {
        let keyword = self.at;
        let Some(delay) = self.delay(keyword) else {
            return Ok(());
        };
        let start = self.relation_before()?;
        let (expression, name) = self.expression(keyword, delay)?;
        self.at = delay + 1;
        if !is(self.input.get(self.at), "OF") {
            return Err(syntax(
                self.input.get(self.at),
                "OF is missing after DELAY.",
                "write DELAY OF INTERVAL 10 MINUTES",
            ));
        }
        self.at += 1;
        let span = self.delay_span()?;
        let relation = self.output.split_off(start);
        let text = self
            .input
            .get(keyword + 1)
            .map_or(TextSpan::empty(), |token| token.span);
        let mut call = Call::open(&mut self.output, WATERMARK_CALL, text);
        call.output.extend(relation);
        call.end_relation();
        call.argument(expression);
        call.argument(name.unwrap_or_else(|| vec![at(Token::make_keyword("NULL"), text)]));
        call.text(&span.nanos().to_string());
        call.place();
        call.close();
        if is(self.input.get(self.at), "WATERMARK") && self.delay(self.at).is_some() {
            return Err(syntax(
                self.input.get(self.at),
                "This relation has two WATERMARK clauses.",
                "keep one; for another column, put the relation into a subquery",
            ));
        }
        self.refuse_sample()
    }

    /// Splits what stands between `WATERMARK` and `DELAY` into the expression and its name.
    fn expression(
        &self,
        keyword: usize,
        delay: usize,
    ) -> Result<(Vec<TokenWithSpan>, Option<Vec<TokenWithSpan>>), Refusal> {
        let tokens = &self.input[keyword + 1..delay];
        if tokens.is_empty() {
            return Err(syntax(
                self.input.get(delay),
                "WATERMARK names no column.",
                "write WATERMARK column DELAY OF INTERVAL 10 MINUTES",
            ));
        }
        let (body, last) = tokens.split_at(tokens.len() - 1);
        if is(body.last(), "AS") {
            if last
                .first()
                .and_then(|token| as_word(&token.token))
                .is_none()
            {
                return Err(syntax(
                    last.first(),
                    "The event time's name is not a name.",
                    "write it without quotes, or in double quotes",
                ));
            }
            return Ok((body[..body.len() - 1].to_vec(), Some(last.to_vec())));
        }
        if names_expression(body, last.first()) {
            return Ok((body.to_vec(), Some(last.to_vec())));
        }
        Ok((tokens.to_vec(), None))
    }

    /// Index in the output of the first token of the table's name that ends there, if one does.
    pub(super) fn name_before(&self) -> Option<usize> {
        let last = self.output.last()?;
        let is_name = matches!(last.token, Token::Word(_) | Token::SingleQuotedString(_));
        is_name.then(|| self.relation_before().ok()).flatten()
    }

    /// Index in the output of the first token of the relation that ends there.
    fn relation_before(&self) -> Result<usize, Refusal> {
        let here = self.input.get(self.at);
        let wrong = || {
            syntax(
                here,
                "WATERMARK follows no relation.",
                "write it directly after the table, function or subquery",
            )
        };
        let last = self.output.len().checked_sub(1).ok_or_else(wrong)?;
        let start = match &self.output[last].token {
            Token::RParen => {
                let open = opening(&self.output, last).ok_or_else(wrong)?;
                match open.checked_sub(1) {
                    Some(before) if calls(&self.output[before]) => name_start(&self.output, before),
                    _ => open,
                }
            }
            Token::Word(_) | Token::SingleQuotedString(_) => name_start(&self.output, last),
            _ => return Err(wrong()),
        };
        match start
            .checked_sub(1)
            .and_then(|before| self.output.get(before))
        {
            Some(before) if begins_relation(before) => Ok(start),
            _ => Err(syntax(
                here,
                "The alias stands before the WATERMARK clause.",
                "write the alias after it: t WATERMARK ts DELAY OF INTERVAL 10 MINUTES AS x",
            )),
        }
    }
}
