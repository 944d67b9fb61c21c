//! Small questions to tokens: dotted names, names of expressions, words that end a clause.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::sql::interval::is_unit;
use crate::sql::tokens::{as_word, is};

/// Keywords after which no relation comes before the next FROM.
pub(super) fn ends_from(keyword: Keyword) -> bool {
    use Keyword as K;
    matches!(
        keyword,
        K::SELECT
            | K::WHERE
            | K::GROUP
            | K::HAVING
            | K::ORDER
            | K::LIMIT
            | K::OFFSET
            | K::FETCH
            | K::UNION
            | K::EXCEPT
            | K::INTERSECT
            | K::QUALIFY
            | K::RETURNING
            | K::VALUES
    )
}

/// Keywords that cannot stand in the clause's expression outside parentheses.
pub(super) fn ends_clause(keyword: Keyword) -> bool {
    ends_from(keyword)
        || matches!(
            keyword,
            Keyword::FROM | Keyword::JOIN | Keyword::ON | Keyword::USING
        )
}

/// Whether a relation begins after this token.
pub(super) fn begins_relation(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Comma | Token::LParen)
        || ["FROM", "JOIN", "LATERAL"]
            .iter()
            .any(|word| is(Some(token), word))
}

/// Whether a token before a parenthesis is the name of a function.
pub(super) fn calls(token: &TokenWithSpan) -> bool {
    as_word(&token.token).is_some() && !begins_relation(token) && !is(Some(token), "AS")
}

/// Index of the first token of the dotted name that ends at `last`.
pub(super) fn name_start(tokens: &[TokenWithSpan], last: usize) -> usize {
    let mut start = last;
    while start >= 2
        && tokens[start - 1].token == Token::Period
        && as_word(&tokens[start - 2].token).is_some()
    {
        start -= 2;
    }
    start
}

/// Index behind the dotted name that begins at `at`.
pub(super) fn dotted_name(tokens: &[TokenWithSpan], at: usize) -> usize {
    let is_part = |at: usize| {
        tokens.get(at).is_some_and(|token| {
            matches!(token.token, Token::Word(_) | Token::SingleQuotedString(_))
        })
    };
    if !is_part(at) {
        return at;
    }
    let mut end = at + 1;
    while tokens
        .get(end)
        .is_some_and(|token| token.token == Token::Period)
        && is_part(end + 1)
    {
        end += 2;
    }
    end
}

/// Whether `last` is a name given to the expression `body` without AS.
pub(super) fn names_expression(body: &[TokenWithSpan], last: Option<&TokenWithSpan>) -> bool {
    let Some(word) = last.and_then(|token| as_word(&token.token)) else {
        return false;
    };
    match body.last().map(|token| &token.token) {
        Some(Token::RParen) => !matches!(word.keyword, Keyword::END),
        Some(Token::Word(_))
            if body.len() >= 2
                && body
                    .get(body.len() - 2)
                    .is_some_and(|token| token.token == Token::DoubleColon) =>
        {
            !matches!(word.keyword, Keyword::END)
        }
        Some(Token::Word(before)) => {
            (before.keyword == Keyword::NoKeyword
                || before.quote_style.is_some()
                || before.keyword == Keyword::END)
                && word.keyword != Keyword::END
        }
        Some(Token::SingleQuotedString(_) | Token::Number(..)) => {
            !is_unit(&word.value) && word.keyword != Keyword::END
        }
        _ => false,
    }
}
