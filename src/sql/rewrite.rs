//! Rewrites in the parsed query that give `window()` its meaning in DataFusion's terms.
//!
//! `window(ts, '1 hour')` names a column that stands under the aggregate. For every SELECT that
//! calls it, the FROM clause is wrapped so that the column exists before anything refers to it:
//!
//! ```text
//! SELECT window.start, count(*) FROM t WHERE v > 0 GROUP BY window(ts, '1 hour')
//! SELECT window.start AS start, count(*)
//! FROM TABLE(__tidegate_window((SELECT * FROM t), 1, 58, 'window', '__tidegate_w1', ts, '1 hour')) WHERE v > 0
//! GROUP BY __tidegate_w1
//! ```
//!
//! A dot behind a call, `window(…).start`, which DataFusion does not take, becomes a field access.

use std::ops::ControlFlow;

use datafusion::common::Result;
use sqlparser::ast::{
    AccessExpr, ExcludeSelectItem, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    GroupByExpr, Ident, ObjectName, ObjectNamePart, OrderBy, Query, Select, SelectItem, SetExpr,
    Spanned, Statement, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};

use super::build;
use super::tokens::is;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Place, Refusal};

/// Table function that adds the column of a window.
pub(crate) const WINDOW_CALL: &str = "__tidegate_window";
/// Name of that column, before its number: each SELECT of a statement has its own.
const WINDOW_COLUMN: &str = "__tidegate_w";
/// Functions that name a time window.
pub(crate) const WINDOW_FUNCTIONS: [&str; 2] = ["window", "session_window"];

/// Whether tokens may hold anything for [`rewrite`] to do: a window function, or a dot behind a call.
pub(super) fn concerns(tokens: &[TokenWithSpan]) -> bool {
    let names_window =
        |token: &TokenWithSpan| WINDOW_FUNCTIONS.iter().any(|name| is(Some(token), name));
    let dot_behind = |pair: &[TokenWithSpan]| matches!(pair, [first, second] if first.token == Token::RParen && second.token == Token::Period);
    tokens.iter().any(names_window) || tokens.windows(2).any(dot_behind)
}

/// Rewrites every SELECT of a statement.
pub(crate) fn rewrite(statement: &mut Statement) -> Result<()> {
    match VisitMut::visit(statement, &mut Selects::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refusal) => Err((*refusal).into()),
    }
}

/// Walks the SELECTs of a statement, and numbers their windows.
#[derive(Default)]
struct Selects {
    windows: usize,
}

impl VisitorMut for Selects {
    type Break = Box<Refusal>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if let SetExpr::Select(select) = query.body.as_mut()
            && let Err(refusal) = self.select(select, query.order_by.as_mut())
        {
            return ControlFlow::Break(Box::new(refusal));
        }
        self.set_operands(query.body.as_mut())
    }
}

impl Selects {
    /// The SELECTs of UNION and its like.
    fn set_operands(&mut self, body: &mut SetExpr) -> ControlFlow<Box<Refusal>> {
        let mut pending = vec![body];
        while let Some(body) = pending.pop() {
            if let SetExpr::SetOperation { left, right, .. } = body {
                for side in [left, right] {
                    if let SetExpr::Select(select) = side.as_mut() {
                        if let Err(refusal) = self.select(select, None) {
                            return ControlFlow::Break(Box::new(refusal));
                        }
                    } else {
                        pending.push(side.as_mut());
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn column(&mut self) -> String {
        self.windows += 1;
        format!("{WINDOW_COLUMN}{}", self.windows)
    }

    /// Rewrites one SELECT, and the ORDER BY that stands beside it.
    fn select(
        &mut self,
        select: &mut Select,
        mut order_by: Option<&mut OrderBy>,
    ) -> Result<(), Refusal> {
        let before: Vec<SelectItem> = select.projection.clone();
        for item in &mut select.projection {
            name_bound(item);
        }
        let mut calls = Calls::of(self.column(), None, false);
        let mut flow = visit_clauses(select, order_by.as_deref_mut(), &mut calls);
        if calls.call.is_some() && flow.is_continue() {
            calls.names = true;
            flow = visit_clauses(select, order_by, &mut calls);
        }
        if let ControlFlow::Break(refusal) = flow {
            return Err(*refusal);
        }
        let Some(call) = calls.call else {
            return Ok(());
        };
        let window = Window {
            call,
            column: calls.column,
        };
        for (item, before) in select.projection.iter_mut().zip(&before) {
            name_item(item, before, &window);
        }
        hide_in_wildcards(select, &window);
        let from = std::mem::take(&mut select.from);
        select.from = vec![self.with_column(from, &window)?];
        Ok(())
    }

    /// `FROM a, b JOIN c` as one relation with the window's column. A window of a window has the
    /// inner one's column below it.
    fn with_column(
        &mut self,
        from: Vec<TableWithJoins>,
        window: &Window,
    ) -> Result<TableWithJoins, Refusal> {
        let call = &window.call;
        let place = place_of(call);
        if from.is_empty() {
            return Err(Refusal::new(
                "WINDOW_WITHOUT_RELATION",
                "42601",
                format!("{}() needs a FROM clause.", column_name(call)),
            )
            .at(place));
        }
        let mut expressions = arguments_of(call)?;
        let inner = expressions.first().and_then(window_call).cloned();
        let from = match (inner, expressions.first_mut()) {
            (Some(call), Some(time)) => {
                let inner = Window {
                    call,
                    column: self.column(),
                };
                *time = inner.expr();
                vec![self.with_column(from, &inner)?]
            }
            _ => from,
        };
        let mut arguments = vec![
            build::subquery(from),
            build::number(place.map_or(0, |place| place.line)),
            build::number(place.map_or(0, |place| place.column)),
            build::text(&column_name(call)),
            build::text(&window.column),
        ];
        arguments.extend(expressions);
        let arguments = arguments.into_iter().map(build::unnamed).collect();
        Ok(TableWithJoins {
            relation: TableFactor::TableFunction {
                expr: build::call(WINDOW_CALL, arguments),
                alias: None,
            },
            joins: Vec::new(),
        })
    }
}

/// The window of one SELECT.
struct Window {
    call: Function,
    column: String,
}

impl Window {
    /// The column that stands for it.
    fn expr(&self) -> Expr {
        window_column(&self.column)
    }
}

/// The arguments of a call, none of them named.
fn arguments_of(call: &Function) -> Result<Vec<Expr>, Refusal> {
    let FunctionArguments::List(list) = &call.args else {
        return Err(wrong_arguments(call));
    };
    let modified = list.duplicate_treatment.is_some()
        || !list.clauses.is_empty()
        || call.filter.is_some()
        || call.null_treatment.is_some()
        || !call.within_group.is_empty();
    if modified {
        return Err(wrong_arguments(call));
    }
    let expressions = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr.clone()),
        _ => Err(wrong_arguments(call)),
    });
    expressions.collect()
}

/// Replaces the window call of one SELECT by its column, in one of its clauses.
struct Calls {
    /// The column that stands for the window.
    column: String,
    /// The one call, once seen.
    call: Option<Function>,
    /// Whether the bare name `window` means the window here.
    names: bool,
    /// Subqueries entered: what they call is theirs.
    depth: usize,
}

impl Calls {
    fn of(column: String, call: Option<Function>, names: bool) -> Self {
        Self {
            column,
            call,
            names,
            depth: 0,
        }
    }

    /// Takes note of a call; a second, different one is refused.
    fn note(&mut self, call: &Function) -> Result<(), Refusal> {
        match &self.call {
            Some(known) if !same_call(known, call) => Err(Refusal::new(
                "UNSUPPORTED_TIME_WINDOWS",
                "42K0E",
                "One SELECT can have one time window; this one has two that differ.",
            )
            .at(place_of(call))
            .hint("compute the second window in a query of its own, over a subquery or a second stream")),
            Some(_) => Ok(()),
            None => {
                self.call = Some(call.clone());
                Ok(())
            }
        }
    }
}

impl VisitorMut for Calls {
    type Break = Box<Refusal>;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Self::Break> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Self::Break> {
        self.depth = self.depth.saturating_sub(1);
        ControlFlow::Continue(())
    }

    /// Before the children: the outer of two nested calls is the SELECT's window, the inner one its
    /// argument.
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        dot_behind_call(expr);
        if let Some(call) = window_call(expr).cloned() {
            if let Err(refusal) = self.note(&call) {
                return ControlFlow::Break(Box::new(refusal));
            }
            *expr = window_column(&self.column);
        } else if self.names
            && let Some(call) = &self.call
        {
            bare_name(expr, call, &self.column);
        }
        ControlFlow::Continue(())
    }
}

/// `window` and `window.start` in a SELECT that calls `window()` mean that window, whatever columns
/// the FROM clause has.
fn bare_name(expr: &mut Expr, call: &Function, column: &str) {
    let name = column_name(call);
    let fields = match expr {
        Expr::Identifier(ident) if ident.value.eq_ignore_ascii_case(&name) => Vec::new(),
        Expr::CompoundIdentifier(parts) => match parts.split_first() {
            Some((first, rest)) if first.value.eq_ignore_ascii_case(&name) => {
                rest.iter().map(field_name).collect()
            }
            _ => return,
        },
        _ => return,
    };
    *expr = fields.iter().fold(window_column(column), |base, field| {
        build::get_field(base, field)
    });
}

/// Whether two calls are written the same, up to case and space.
fn same_call(a: &Function, b: &Function) -> bool {
    a.to_string().eq_ignore_ascii_case(&b.to_string())
}

/// Whether an expression is a call of a window function.
fn window_call(expr: &Expr) -> Option<&Function> {
    let Expr::Function(function) = expr else {
        return None;
    };
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
        return None;
    };
    let known = name.quote_style.is_none()
        && function.over.is_none()
        && WINDOW_FUNCTIONS
            .iter()
            .any(|known| name.value.eq_ignore_ascii_case(known));
    known.then_some(function)
}

/// The column that stands for a window.
fn window_column(column: &str) -> Expr {
    Expr::Identifier(Ident::with_quote('"', column))
}

/// `window` or `session_window`.
fn column_name(call: &Function) -> String {
    call.name.to_string().to_ascii_lowercase()
}

pub(super) fn place_of(call: &Function) -> Option<Place> {
    super::tokens::place(call.span().start)
}

/// The name of a field: in lower case unless it is quoted, as DataFusion reads names.
fn field_name(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

/// `f(x).field` as DataFusion's `get_field(f(x), 'field')`.
fn dot_behind_call(expr: &mut Expr) {
    let Expr::CompoundFieldAccess { root, access_chain } = expr else {
        return;
    };
    if !matches!(
        root.as_ref(),
        Expr::Function(_) | Expr::CompoundIdentifier(_) | Expr::Nested(_)
    ) {
        return;
    }
    let fields: Option<Vec<String>> = access_chain
        .iter()
        .map(|access| match access {
            AccessExpr::Dot(Expr::Identifier(name)) => Some(field_name(name)),
            _ => None,
        })
        .collect();
    if let Some(fields) = fields {
        *expr = fields.iter().fold(root.as_ref().clone(), |base, field| {
            build::get_field(base, field)
        });
    }
}

/// The clauses in which a window can be named. WHERE comes before grouping: there, and in GROUP BY,
/// a bare `window` is a column of the FROM clause.
fn visit_clauses(
    select: &mut Select,
    order_by: Option<&mut OrderBy>,
    calls: &mut Calls,
) -> ControlFlow<Box<Refusal>> {
    if let Some(order_by) = order_by {
        VisitMut::visit(order_by, calls)?;
    }
    VisitMut::visit(&mut select.projection, calls)?;
    VisitMut::visit(&mut select.having, calls)?;
    VisitMut::visit(&mut select.qualify, calls)?;
    let names = std::mem::replace(&mut calls.names, false);
    if let GroupByExpr::Expressions(expressions, _) = &mut select.group_by {
        VisitMut::visit(expressions, calls)?;
    }
    VisitMut::visit(&mut select.selection, calls)?;
    calls.names = names;
    ControlFlow::Continue(())
}

/// Gives `window.start` and `window(…).start` the name that Spark gives them.
fn name_bound(item: &mut SelectItem) {
    let SelectItem::UnnamedExpr(expr) = item else {
        return;
    };
    let name = match expr {
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [window, field]
                if WINDOW_FUNCTIONS
                    .iter()
                    .any(|known| window.value.eq_ignore_ascii_case(known))
                    && is_bound(&field.value) =>
            {
                Some(field.value.to_ascii_lowercase())
            }
            _ => None,
        },
        Expr::CompoundFieldAccess { root, access_chain } if window_call(root).is_some() => {
            match access_chain.as_slice() {
                [AccessExpr::Dot(Expr::Identifier(field))] => {
                    Some(field.value.to_ascii_lowercase())
                }
                _ => None,
            }
        }
        _ => None,
    };
    if let Some(name) = name {
        *item = SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias: Ident::with_quote('"', name),
        };
    }
}

/// Names what was not named by what was written, not by the column that stands for the window. The
/// window itself goes by its function's name.
fn name_item(item: &mut SelectItem, before: &SelectItem, window: &Window) {
    let (SelectItem::UnnamedExpr(expr), SelectItem::UnnamedExpr(written)) = (&*item, before) else {
        return;
    };
    let name = if *expr == window.expr() {
        column_name(&window.call)
    } else if expr != written {
        written.to_string()
    } else {
        return;
    };
    *item = SelectItem::ExprWithAlias {
        expr: expr.clone(),
        alias: Ident::with_quote('"', name),
    };
}

fn is_bound(field: &str) -> bool {
    field.eq_ignore_ascii_case("start") || field.eq_ignore_ascii_case("end")
}

/// `SELECT *` shows the columns of the FROM clause, not the one added for the window.
fn hide_in_wildcards(select: &mut Select, window: &Window) {
    for item in &mut select.projection {
        let SelectItem::Wildcard(options) = item else {
            continue;
        };
        let hidden = ObjectName::from(vec![Ident::with_quote('"', window.column.as_str())]);
        let names = match options.opt_exclude.take() {
            None => vec![hidden],
            Some(ExcludeSelectItem::Single(name)) => vec![name, hidden],
            Some(ExcludeSelectItem::Multiple(names)) => names.into_iter().chain([hidden]).collect(),
        };
        options.opt_exclude = Some(ExcludeSelectItem::Multiple(names));
    }
}

fn wrong_arguments(call: &Function) -> Refusal {
    Refusal::new(
        "WRONG_NUM_ARGS.WITHOUT_SUGGESTION",
        "42605",
        format!("{}() takes a time column and lengths of time.", column_name(call)),
    )
    .at(place_of(call))
    .hint("write window(ts, '10 minutes'), window(ts, '1 hour', '10 minutes') or window(ts, '1 day', '1 day', '8 hours')")
}
