//! Rewrites in the parsed query that give `window()` its meaning in DataFusion's terms.
//!
//! `window(ts, '1 hour')` names a column that stands under the aggregate. For every SELECT that
//! calls it, the FROM clause is wrapped so that the column exists before anything refers to it:
//!
//! ```text
//! SELECT window.start, count(*) FROM t WHERE v > 0 GROUP BY window(ts, '1 hour')
//! SELECT window.start AS start, count(*)
//! FROM TABLE(__tidegate_window((SELECT * FROM t), 1, 58, ts, '1 hour')) WHERE v > 0
//! GROUP BY __tidegate_w.window
//! ```
//!
//! A dot behind a call, `window(…).start`, which DataFusion does not take, becomes a field access.

use std::ops::ControlFlow;

use datafusion::common::Result;
use sqlparser::ast::{
    AccessExpr, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, Spanned, Statement,
    TableFactor, TableWithJoins, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use super::build;
use crate::error::{Place, Refusal};

/// Table function that adds the column of a window.
pub(crate) const WINDOW_CALL: &str = "__tidegate_window";
/// Qualifier of that column.
pub(crate) const WINDOW_QUALIFIER: &str = "__tidegate_w";
/// Functions that name a time window.
pub(crate) const WINDOW_FUNCTIONS: [&str; 2] = ["window", "session_window"];

/// Rewrites every SELECT of a statement.
pub(crate) fn rewrite(statement: &mut Statement) -> Result<()> {
    match VisitMut::visit(statement, &mut Selects) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refusal) => Err((*refusal).into()),
    }
}

struct Selects;

impl VisitorMut for Selects {
    type Break = Box<Refusal>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let mut found = None;
        if let SetExpr::Select(select) = query.body.as_mut() {
            match rewrite_select(select) {
                Ok(call) => found = call,
                Err(refusal) => return ControlFlow::Break(Box::new(refusal)),
            }
        }
        // ORDER BY stands beside the SELECT, not inside it.
        if let (Some(call), Some(order_by)) = (found, query.order_by.as_mut()) {
            let mut calls = Calls::of(Some(call), true);
            VisitMut::visit(order_by, &mut calls)?;
        }
        set_operands(query.body.as_mut())
    }
}

/// The SELECTs of UNION and its like.
fn set_operands(body: &mut SetExpr) -> ControlFlow<Box<Refusal>> {
    let mut pending = vec![body];
    while let Some(body) = pending.pop() {
        if let SetExpr::SetOperation { left, right, .. } = body {
            for side in [left, right] {
                if let SetExpr::Select(select) = side.as_mut() {
                    if let Err(refusal) = rewrite_select(select) {
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

/// Replaces the window call of one SELECT by its column, in one of its clauses.
struct Calls {
    /// The one call, once seen.
    call: Option<Function>,
    /// Whether the bare name `window` means the window here.
    names: bool,
    /// Subqueries entered: what they call is theirs.
    depth: usize,
}

impl Calls {
    fn of(call: Option<Function>, names: bool) -> Self {
        Self {
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
            *expr = window_column(&call);
        } else if self.names
            && let Some(call) = &self.call
        {
            bare_name(expr, call);
        }
        ControlFlow::Continue(())
    }
}

/// `window` and `window.start` in a SELECT that calls `window()` mean that window, whatever columns
/// the FROM clause has.
fn bare_name(expr: &mut Expr, call: &Function) {
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
    *expr = fields.iter().fold(window_column(call), |base, field| {
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

/// The column that stands for the window.
fn window_column(call: &Function) -> Expr {
    Expr::CompoundIdentifier(vec![
        Ident::with_quote('"', WINDOW_QUALIFIER),
        Ident::with_quote('"', column_name(call)),
    ])
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

/// Rewrites one SELECT; returns its window call, if it has one.
fn rewrite_select(select: &mut Select) -> Result<Option<Function>, Refusal> {
    for item in &mut select.projection {
        name_item(item);
    }
    let mut calls = Calls::of(None, false);
    let mut flow = visit_clauses(select, &mut calls);
    if calls.call.is_some() && flow.is_continue() {
        calls.names = true;
        flow = visit_clauses(select, &mut calls);
    }
    if let ControlFlow::Break(refusal) = flow {
        return Err(*refusal);
    }
    let Some(call) = calls.call else {
        return Ok(None);
    };
    for item in &mut select.projection {
        name_window(item, &call);
    }
    hide_in_wildcards(select, &column_name(&call));
    wrap_from(select, &call)?;
    Ok(Some(call))
}

/// The clauses in which a window can be named. WHERE comes before grouping: there, and in GROUP BY,
/// a bare `window` is a column of the FROM clause.
fn visit_clauses(select: &mut Select, calls: &mut Calls) -> ControlFlow<Box<Refusal>> {
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
fn name_item(item: &mut SelectItem) {
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

/// Selects the window itself under its plain name, so that an outer SELECT can have its own.
fn name_window(item: &mut SelectItem, call: &Function) {
    if let SelectItem::UnnamedExpr(expr) = item
        && *expr == window_column(call)
    {
        *item = SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias: Ident::with_quote('"', column_name(call)),
        };
    }
}

fn is_bound(field: &str) -> bool {
    field.eq_ignore_ascii_case("start") || field.eq_ignore_ascii_case("end")
}

/// `SELECT *` shows the columns of the FROM clause, not the one added for the window.
fn hide_in_wildcards(select: &mut Select, column: &str) {
    use sqlparser::ast::ExcludeSelectItem;
    for item in &mut select.projection {
        if let SelectItem::Wildcard(options) = item
            && options.opt_exclude.is_none()
            && options.opt_except.is_none()
        {
            let hidden = ObjectName::from(vec![
                Ident::with_quote('"', WINDOW_QUALIFIER),
                Ident::with_quote('"', column),
            ]);
            *options = WildcardAdditionalOptions {
                opt_exclude: Some(ExcludeSelectItem::Single(hidden)),
                ..options.clone()
            };
        }
    }
}

/// `FROM a, b JOIN c` becomes one relation with the window's column.
fn wrap_from(select: &mut Select, call: &Function) -> Result<(), Refusal> {
    let place = place_of(call);
    if select.from.is_empty() {
        return Err(Refusal::new(
            "WINDOW_WITHOUT_RELATION",
            "42601",
            format!("{}() needs a FROM clause.", column_name(call)),
        )
        .at(place));
    }
    let from = std::mem::take(&mut select.from);
    let FunctionArguments::List(list) = &call.args else {
        return Err(wrong_arguments(call));
    };
    let mut arguments = vec![
        build::unnamed(build::subquery(from)),
        build::unnamed(build::number(place.map_or(0, |place| place.line))),
        build::unnamed(build::number(place.map_or(0, |place| place.column))),
        build::unnamed(build::text(&column_name(call))),
    ];
    for argument in &list.args {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(_)) => arguments.push(argument.clone()),
            _ => return Err(wrong_arguments(call)),
        }
    }
    select.from = vec![TableWithJoins {
        relation: TableFactor::TableFunction {
            expr: build::call(WINDOW_CALL, arguments),
            alias: None,
        },
        joins: Vec::new(),
    }];
    Ok(())
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
