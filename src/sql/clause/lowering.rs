//! The walk over the tokens that finds the streaming clauses and lowers `STREAM`.

use sqlparser::keywords::{Keyword, RESERVED_FOR_TABLE_ALIAS};
use sqlparser::tokenizer::{Span as TextSpan, Token, TokenWithSpan};

use super::call::Call;
use super::names::{dotted_name, ends_from};
use super::options::begins_options;
use super::{OPTIONS_CALL, STREAM_CALL, syntax};
use crate::error::Refusal;
use crate::sql::tokens::{closing, is, place};

/// What is known inside one pair of parentheses.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scope {
    /// In a FROM clause.
    from: bool,
    /// The next token begins a relation.
    expected: bool,
}

pub(super) struct Lowering {
    pub(super) input: Vec<TokenWithSpan>,
    /// For each `WATERMARK` the `DELAY` that belongs to it.
    pub(super) delays: Vec<Option<usize>>,
    pub(super) at: usize,
    pub(super) output: Vec<TokenWithSpan>,
    pub(super) scopes: Vec<Scope>,
}

impl Lowering {
    pub(super) fn run(mut self) -> Result<Vec<TokenWithSpan>, Refusal> {
        self.find_delays();
        while let Some(token) = self.input.get(self.at) {
            let scope = self.scope();
            if scope.expected && is(Some(token), "STREAM") && self.names_a_relation() {
                self.stream()?;
            } else if scope.from
                && !scope.expected
                && is(Some(token), "WATERMARK")
                && self.opens_clause()?
            {
                self.watermark()?;
            } else if scope.from
                && !scope.expected
                && is(Some(token), "WITH")
                && begins_options(&self.input[self.at + 1..])
                && let Some(start) = self.name_before()
            {
                self.named_options(start)?;
            } else {
                self.copy();
            }
        }
        Ok(self.output)
    }

    fn scope(&self) -> Scope {
        self.scopes.last().copied().unwrap_or_default()
    }

    fn set(&mut self, scope: Scope) {
        if let Some(last) = self.scopes.last_mut() {
            *last = scope;
        }
    }

    /// Copies one token and follows what it says about the place we are in.
    fn copy(&mut self) {
        let Some(token) = self.input.get(self.at).cloned() else {
            return;
        };
        let scope = self.scope();
        match &token.token {
            Token::LParen => {
                let inner = Scope {
                    from: scope.expected,
                    expected: scope.expected,
                };
                self.set(Scope {
                    expected: false,
                    ..scope
                });
                self.scopes.push(inner);
            }
            Token::RParen => {
                if self.scopes.len() > 1 {
                    self.scopes.pop();
                }
            }
            Token::Comma => self.set(Scope {
                expected: scope.from,
                ..scope
            }),
            Token::Word(word) if word.quote_style.is_none() => {
                let distinct_from = is(self.output.last(), "DISTINCT");
                self.set(after_word(word.keyword, scope, distinct_from));
            }
            _ => self.set(Scope {
                expected: false,
                ..scope
            }),
        }
        self.output.push(token);
        self.at += 1;
    }

    /// Whether what follows `STREAM` is the name of a relation, rather than `STREAM` being one.
    fn names_a_relation(&self) -> bool {
        match self.input.get(self.at + 1).map(|token| &token.token) {
            Some(Token::LParen | Token::SingleQuotedString(_)) => true,
            Some(Token::Word(word)) => {
                word.quote_style.is_some()
                    || !(RESERVED_FOR_TABLE_ALIAS.contains(&word.keyword)
                        || word.keyword == Keyword::AS
                        || self.is_clause_of_stream())
            }
            _ => false,
        }
    }

    /// Whether `STREAM` is a relation's name, and the `WATERMARK` behind it its clause. A second
    /// `WATERMARK` would be the clause, and the first one the name of a stream.
    fn is_clause_of_stream(&self) -> bool {
        is(self.input.get(self.at + 1), "WATERMARK")
            && !is(self.input.get(self.at + 2), "WATERMARK")
            && self.delay(self.at + 1).is_some()
    }

    /// `STREAM name [WITH (k = v, …)]` or `STREAM(name) …`.
    fn stream(&mut self) -> Result<(), Refusal> {
        let keyword = self.at;
        self.at += 1;
        let name = if self
            .input
            .get(self.at)
            .is_some_and(|t| t.token == Token::LParen)
        {
            let close = closing(&self.input, self.at).ok_or_else(|| {
                syntax(
                    self.input.get(self.at),
                    "This parenthesis is not closed.",
                    "close it after the name",
                )
            })?;
            let name = self.input[self.at + 1..close].to_vec();
            if dotted_name(&name, 0) != name.len() || name.is_empty() {
                return Err(syntax(
                    self.input.get(self.at + 1),
                    "STREAM(…) takes the name of a table.",
                    "write STREAM(t), or STREAM before the table inside the subquery",
                ));
            }
            self.at = close + 1;
            name
        } else {
            let end = dotted_name(&self.input, self.at);
            let arguments = self
                .input
                .get(end)
                .filter(|token| token.token == Token::LParen);
            let end = match arguments.and_then(|_| closing(&self.input, end)) {
                Some(close) => close + 1,
                None => end,
            };
            let name = self.input[self.at..end].to_vec();
            self.at = end;
            name
        };
        let options = self.options()?;
        let span = self
            .input
            .get(keyword)
            .map_or(TextSpan::empty(), |token| token.span);
        self.optioned(STREAM_CALL, span, name, options);
        self.set(Scope {
            from: true,
            expected: false,
        });
        self.refuse_sample()
    }

    /// `name WITH (k = v, …)`: options for a table that may be a stream.
    fn named_options(&mut self, start: usize) -> Result<(), Refusal> {
        let span = self
            .input
            .get(self.at)
            .map_or(TextSpan::empty(), |token| token.span);
        let options = self.options()?;
        let relation = self.output.split_off(start);
        self.optioned(OPTIONS_CALL, span, relation, options);
        Ok(())
    }

    /// Writes a call over a relation: its place, then its options, key and value in turn.
    fn optioned(
        &mut self,
        name: &str,
        span: TextSpan,
        relation: Vec<TokenWithSpan>,
        options: Vec<(String, String)>,
    ) {
        let mut call = Call::open(&mut self.output, name, span);
        call.output.extend(relation);
        call.end_relation();
        call.place();
        for (key, value) in options {
            call.text(&key);
            call.text(&value);
        }
        call.close();
    }

    /// A sample of a stream would change what the watermark sees: refused, before DataFusion ignores it.
    pub(super) fn refuse_sample(&self) -> Result<(), Refusal> {
        // The word itself, or the word behind an alias.
        let start = self.at + usize::from(is(self.input.get(self.at), "AS"));
        for token in self.input.iter().skip(start).take(2).map(Some) {
            if is(token, "TABLESAMPLE") || is(token, "SAMPLE") {
                return Err(Refusal::new(
                    "UNSUPPORTED_FEATURE.TABLESAMPLE",
                    "0A000",
                    "A stream cannot be sampled.",
                )
                .at(token.and_then(|token| place(token.span.start)))
                .hint("filter with WHERE instead, such as WHERE id % 10 = 0"));
            }
        }
        Ok(())
    }
}

/// The scope behind an unquoted word.
fn after_word(keyword: Keyword, scope: Scope, distinct_from: bool) -> Scope {
    match keyword {
        Keyword::FROM if !distinct_from => Scope {
            from: true,
            expected: true,
        },
        Keyword::JOIN => Scope {
            expected: scope.from,
            ..scope
        },
        Keyword::LATERAL => scope,
        _ if ends_from(keyword) => Scope::default(),
        _ => Scope {
            expected: false,
            ..scope
        },
    }
}
