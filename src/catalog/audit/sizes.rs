//! The size of a floating-point value: how great the numbers are that it is made of. By a part of that its last bits may
//! differ, for they depend on the order of the rows, and a sum may be far less than what is summed.
//!
//! ```text
//! sum(v)                              sum(abs(v))
//! avg(v), stddev(v), stddev_pop(v)    avg(abs(v))
//! var(v), covar_pop(v, w), …          avg(abs(v * w))
//! corr(v, w)                          1
//! a + b, a - b, coalesce(a, b)        size(a) + size(b)
//! a * b                               size(a) * abs(b) + size(b) * abs(a)
//! a / b                               size(a) / abs(b)
//! anything else                       none: it is known as a part of itself
//! ```
//!
//! The size of the column at 3 is carried in the column `__tidegate_size3`, behind the columns of the query.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::functions::math::expr_fn::abs;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::min_max::max_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, BinaryExpr, Expr, Operator, Projection, cast, lit};

use super::plans::column;

const SIZE: &str = "__tidegate_size";

/// Name of the column with the size of the one at this place.
pub(super) fn size_name(at: usize) -> String {
    format!("{SIZE}{at}")
}

/// Whether this is such a name.
pub(super) fn is_size(name: &str) -> bool {
    name.starts_with(SIZE)
}

/// The sizes of what an aggregate gives, as aggregates over the same rows.
pub(super) fn sizes(aggregate: &Aggregate) -> Vec<Expr> {
    let groups = aggregate.group_expr.len();
    let columns = aggregate.schema.fields().iter().enumerate().skip(groups);
    let all = aggregate.aggr_expr.iter().zip(columns);
    let sizes = all.filter_map(|(expr, (at, field))| {
        let size = aggregated(expr).filter(|_| field.data_type().is_floating())?;
        Some(size.alias(size_name(at)))
    });
    sizes.collect()
}

/// The sizes of what a projection gives, over an input that carries those of its columns.
pub(super) fn sizes_of(projection: &Projection, input: &DFSchema) -> Vec<Expr> {
    let columns = projection.schema.fields().iter().enumerate();
    let all = projection.expr.iter().zip(columns);
    let sizes = all.filter_map(|(expr, (at, field))| {
        let size = computed(expr, input).filter(|_| field.data_type().is_floating())?;
        Some(size.alias(size_name(at)))
    });
    sizes.collect()
}

/// The size of what an aggregate function gives.
fn aggregated(expr: &Expr) -> Option<Expr> {
    let mut expr = expr;
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    let Expr::AggregateFunction(call) = expr else {
        return None;
    };
    let number = |arg: &Expr| cast(arg.clone(), DataType::Float64);
    let args = &call.params.args;
    let (first, last) = (number(args.first()?), number(args.last()?));
    let (function, of) = match call.func.name() {
        "sum" => (sum_udaf(), abs(first)),
        "avg" | "stddev" | "stddev_pop" => (avg_udaf(), abs(first)),
        "var" | "var_pop" | "covar_samp" | "covar_pop" => (avg_udaf(), abs(first * last)),
        "corr" => (max_udaf(), lit(1.0)),
        _ => return None,
    };
    let filter = call.params.filter.clone();
    let size = AggregateFunction::new_udf(function, vec![of], false, filter, vec![], None);
    Some(Expr::AggregateFunction(size))
}

/// The size of what an expression gives.
fn computed(expr: &Expr, input: &DFSchema) -> Option<Expr> {
    match expr {
        Expr::Alias(alias) => computed(&alias.expr, input),
        Expr::Cast(inner) => computed(&inner.expr, input),
        Expr::TryCast(inner) => computed(&inner.expr, input),
        Expr::Negative(inner) => computed(inner, input),
        Expr::Column(of) => {
            let at = input.index_of_column(of).ok()?;
            let size = column(input, &size_name(at))?;
            // A sum of no numbers has none.
            Some(coalesce(vec![size, lit(0.0)]))
        }
        Expr::ScalarFunction(call) if call.name() == "coalesce" => {
            let sizes = call.args.iter().filter_map(|arg| computed(arg, input));
            sizes.reduce(|one, other| one + other)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (one, other) = (computed(left, input), computed(right, input));
            let magnitude = |of: &Expr| abs(cast(of.clone(), DataType::Float64));
            let (one, other) = match op {
                Operator::Plus | Operator::Minus => (one, other),
                Operator::Multiply => (
                    one.map(|one| one * magnitude(right)),
                    other.map(|other| other * magnitude(left)),
                ),
                Operator::Divide => (one.map(|one| one / magnitude(right)), None),
                _ => (None, None),
            };
            match (one, other) {
                (Some(one), Some(other)) => Some(one + other),
                (one, other) => one.or(other),
            }
        }
        _ => None,
    }
}
