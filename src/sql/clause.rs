//! The streaming clauses of a FROM item, found on tokens and lowered to what sqlparser can parse.
//!
//! ```text
//! FROM STREAM orders WITH (epoch_by = 'batch') WATERMARK ts DELAY OF INTERVAL 1 HOUR AS o
//! FROM TABLE(__tidegate_watermark((SELECT * FROM
//!        TABLE(__tidegate_stream((SELECT * FROM orders), 1, 13, 'epoch_by', 'batch'))), ts, NULL, '3600000000000', 1, 45)) AS o
//! ```
//!
//! sqlparser has no hook behind a table factor, so the words are recognised before it: one pass over
//! the tokens keeps, for every open parenthesis, whether it stands in a FROM clause and whether a
//! relation comes next. `STREAM` counts only where a relation begins, and `WATERMARK` only behind a
//! relation and when `DELAY` follows, so that both stay usable as names. Tokens keep their places,
//! and the places of our words travel as numbers, so that later errors can point at them.
//! [`relation`](super::relation) turns the lowered calls into plan nodes; DataFusion refuses a table
//! function it does not know, so that a lowered clause cannot be lost.

use sqlparser::keywords::{Keyword, RESERVED_FOR_TABLE_ALIAS};
use sqlparser::tokenizer::{Span as TextSpan, Token, TokenWithSpan};

use super::interval::{SpanError, between_units, is_unit, parse_span};
use super::tokens::{as_word, closing, is, opening, place};
use crate::error::Refusal;
use crate::time::Span;

/// Table function that stands for `STREAM name [WITH (…)]`.
pub(crate) const STREAM_CALL: &str = "__tidegate_stream";
/// Table function that stands for a relation with a WATERMARK clause.
pub(crate) const WATERMARK_CALL: &str = "__tidegate_watermark";

/// Whether a text can hold anything for [`lower`] to do.
pub(crate) fn concerns(tokens: &[TokenWithSpan]) -> bool {
    tokens
        .iter()
        .any(|token| is(Some(token), "STREAM") || is(Some(token), "WATERMARK"))
}

/// Lowers every streaming clause; tokens of white space are left out of the result.
pub(crate) fn lower(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>, Refusal> {
    let input: Vec<TokenWithSpan> = tokens
        .into_iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)))
        .collect();
    Lowering {
        output: Vec::with_capacity(input.len()),
        delays: Vec::new(),
        input,
        at: 0,
        scopes: vec![Scope::default()],
    }
    .run()
}

/// What is known inside one pair of parentheses.
#[derive(Debug, Clone, Copy, Default)]
struct Scope {
    /// In a FROM clause.
    from: bool,
    /// The next token begins a relation.
    expected: bool,
}

struct Lowering {
    input: Vec<TokenWithSpan>,
    /// For each `WATERMARK` the `DELAY` that belongs to it.
    delays: Vec<Option<usize>>,
    at: usize,
    output: Vec<TokenWithSpan>,
    scopes: Vec<Scope>,
}

impl Lowering {
    fn run(mut self) -> Result<Vec<TokenWithSpan>, Refusal> {
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
        let mut call = Call::open(&mut self.output, STREAM_CALL, span);
        call.output.extend(name);
        call.end_relation();
        call.place();
        for (key, value) in options {
            call.text(&key);
            call.text(&value);
        }
        call.close();
        self.set(Scope {
            from: true,
            expected: false,
        });
        self.refuse_sample()
    }

    /// `WITH (k = v, …)` behind a stream's name.
    fn options(&mut self) -> Result<Vec<(String, String)>, Refusal> {
        let open = self.at + 1;
        if !(is(self.input.get(self.at), "WITH")
            && self
                .input
                .get(open)
                .is_some_and(|token| token.token == Token::LParen))
        {
            return Ok(Vec::new());
        }
        let close = closing(&self.input, open).ok_or_else(|| {
            syntax(
                self.input.get(open),
                "This parenthesis is not closed.",
                "close the options",
            )
        })?;
        let options = parse_options(&self.input[open + 1..close])?;
        self.at = close + 1;
        Ok(options)
    }

    /// Index of the `DELAY` that belongs to the `WATERMARK` at `from`.
    fn delay(&self, from: usize) -> Option<usize> {
        self.delays.get(from).copied().flatten()
    }

    /// Finds the `DELAY` of every `WATERMARK`, from the last to the first: each may need those behind it.
    fn find_delays(&mut self) {
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
    fn opens_clause(&self) -> Result<bool, Refusal> {
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
    fn watermark(&mut self) -> Result<(), Refusal> {
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

    /// `INTERVAL` and its literal.
    fn delay_span(&mut self) -> Result<Span, Refusal> {
        const HINT: &str = "write DELAY OF INTERVAL 10 MINUTES, or INTERVAL '1 hour 30 minutes'";
        let start = self.at;
        if !is(self.input.get(start), "INTERVAL") {
            return Err(syntax(
                self.input.get(start).or(self.input.last()),
                "DELAY OF takes an INTERVAL literal.",
                HINT,
            ));
        }
        self.at += 1;
        let text = self.interval_text();
        let here = self
            .input
            .get(start)
            .and_then(|token| place(token.span.start));
        let span = match parse_span(&text) {
            Ok(span) => span,
            Err(SpanError::Months) => {
                return Err(Refusal::new(
                    "UNSUPPORTED_WATERMARK_DELAY",
                    "42K09",
                    format!("The delay '{text}' has months or years, which have no fixed length."),
                )
                .at(here)
                .hint("write it in days: INTERVAL 31 DAYS"));
            }
            Err(SpanError::Unreadable(reason)) => {
                return Err(Refusal::new(
                    "CANNOT_PARSE_INTERVAL",
                    "22006",
                    format!("The delay cannot be read: {reason}."),
                )
                .at(here)
                .hint(HINT));
            }
        };
        if span < Span::ZERO {
            return Err(Refusal::new(
                "INVALID_WATERMARK_DELAY",
                "42K09",
                format!("The delay is negative: {span}."),
            )
            .at(here)
            .hint("a delay is how long to wait for late rows: zero or more"));
        }
        Ok(span)
    }

    /// The literal behind `INTERVAL`, as one text: `'10 minutes'`, `10 MINUTES 30 SECONDS`.
    fn interval_text(&mut self) -> String {
        let mut parts: Vec<String> = Vec::new();
        loop {
            let signed = matches!(
                self.input.get(self.at).map(|t| &t.token),
                Some(Token::Minus)
            );
            let value = self
                .input
                .get(self.at + usize::from(signed))
                .map(|token| &token.token);
            let (text, quoted) = match value {
                Some(Token::Number(text, _)) => (text.clone(), false),
                Some(Token::SingleQuotedString(text)) => (text.clone(), true),
                _ => break,
            };
            let after = self.at + usize::from(signed) + 1;
            let unit = self
                .input
                .get(after)
                .and_then(|token| as_word(&token.token))
                .filter(|word| word.quote_style.is_none() && is_unit(&word.value));
            let sign = if signed { "-" } else { "" };
            if let Some((from, to)) = unit.zip(self.second_unit(after))
                && quoted
                && parts.is_empty()
            {
                self.at = after + 3;
                let spelled = between_units(&text, &from.value, &to);
                return spelled.unwrap_or_else(|| format!("{text} {} TO {to}", from.value));
            }
            match unit {
                Some(unit) => parts.push(format!("{sign}{text} {}", unit.value)),
                None if parts.is_empty() => parts.push(format!("{sign}{text}")),
                None => break,
            }
            let ends = quoted && unit.is_none();
            self.at = after + usize::from(unit.is_some());
            if ends || unit.is_none() {
                break;
            }
        }
        parts.join(" ")
    }

    /// The unit behind `unit TO`.
    fn second_unit(&self, unit: usize) -> Option<String> {
        if !is(self.input.get(unit + 1), "TO") {
            return None;
        }
        let word = self
            .input
            .get(unit + 2)
            .and_then(|token| as_word(&token.token))?;
        is_unit(&word.value).then(|| word.value.clone())
    }

    /// A sample of a stream would change what the watermark sees: refused, before DataFusion ignores it.
    fn refuse_sample(&self) -> Result<(), Refusal> {
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

/// `k = v, k = v` of a WITH list: keys are words or strings, values words, strings or numbers.
pub(crate) fn parse_options(tokens: &[TokenWithSpan]) -> Result<Vec<(String, String)>, Refusal> {
    let mut options = Vec::new();
    for option in tokens.split(|token| token.token == Token::Comma) {
        let wrong = || {
            syntax(
                option.first(),
                "An option is written key = value.",
                "write WITH (output_mode = 'append')",
            )
        };
        let equals = option
            .iter()
            .position(|token| token.token == Token::Eq)
            .ok_or_else(wrong)?;
        let (key, value) = (&option[..equals], &option[equals + 1..]);
        if key.is_empty() || value.is_empty() {
            return Err(wrong());
        }
        let key = flat(key).to_ascii_lowercase();
        if options.iter().any(|(known, _)| *known == key) {
            return Err(syntax(
                option.first(),
                &format!("The option {key} is given twice."),
                "keep one",
            ));
        }
        options.push((key, flat(value)));
    }
    Ok(options)
}

/// Tokens as plain text: strings without their quotes.
fn flat(tokens: &[TokenWithSpan]) -> String {
    let words: Vec<String> = tokens
        .iter()
        .map(|token| match &token.token {
            Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => text.clone(),
            Token::Word(word) => word.value.clone(),
            other => other.to_string(),
        })
        .collect();
    words.join(if tokens.iter().any(|token| token.token == Token::Period) {
        ""
    } else {
        " "
    })
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

/// Keywords after which no relation comes before the next FROM.
fn ends_from(keyword: Keyword) -> bool {
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
fn ends_clause(keyword: Keyword) -> bool {
    ends_from(keyword)
        || matches!(
            keyword,
            Keyword::FROM | Keyword::JOIN | Keyword::ON | Keyword::USING
        )
}

/// Whether a relation begins after this token.
fn begins_relation(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Comma | Token::LParen)
        || ["FROM", "JOIN", "LATERAL"]
            .iter()
            .any(|word| is(Some(token), word))
}

/// Whether a token before a parenthesis is the name of a function.
fn calls(token: &TokenWithSpan) -> bool {
    as_word(&token.token).is_some() && !begins_relation(token) && !is(Some(token), "AS")
}

/// Index of the first token of the dotted name that ends at `last`.
fn name_start(tokens: &[TokenWithSpan], last: usize) -> usize {
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
fn dotted_name(tokens: &[TokenWithSpan], at: usize) -> usize {
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
fn names_expression(body: &[TokenWithSpan], last: Option<&TokenWithSpan>) -> bool {
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

fn syntax(token: Option<&TokenWithSpan>, message: &str, hint: &str) -> Refusal {
    Refusal::new("PARSE_SYNTAX_ERROR", "42601", message)
        .at(token.and_then(|token| place(token.span.start)))
        .hint(hint)
}

fn at(token: Token, span: TextSpan) -> TokenWithSpan {
    TokenWithSpan { token, span }
}

/// A lowered call being written: `TABLE(name((SELECT * FROM relation), argument, …))`.
struct Call<'a> {
    output: &'a mut Vec<TokenWithSpan>,
    span: TextSpan,
}

impl<'a> Call<'a> {
    fn open(output: &'a mut Vec<TokenWithSpan>, name: &str, span: TextSpan) -> Self {
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
    fn end_relation(&mut self) {
        self.push(Token::RParen);
    }

    /// The place of the clause, as two numbers.
    fn place(&mut self) {
        let start = self.span.start;
        for number in [start.line, start.column] {
            self.push(Token::Comma);
            self.push(Token::Number(number.to_string(), false));
        }
    }

    fn text(&mut self, text: &str) {
        self.push(Token::Comma);
        self.push(Token::SingleQuotedString(text.to_owned()));
    }

    fn argument(&mut self, tokens: Vec<TokenWithSpan>) {
        self.push(Token::Comma);
        self.output.extend(tokens);
    }

    fn close(mut self) {
        self.push(Token::RParen);
        self.push(Token::RParen);
    }
}

#[cfg(test)]
mod tests;
