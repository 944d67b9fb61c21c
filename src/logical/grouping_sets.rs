//! ROLLUP, CUBE and GROUPING SETS as a list of sets.

use datafusion::common::Result;
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Expr, GroupingSet};

/// The expressions that are grouped by, and for each set which of them it leaves out.
#[derive(Debug, Clone)]
pub(super) struct Sets {
    /// Every grouping expression once, in the order of the aggregate's schema.
    pub exprs: Vec<Expr>,
    /// For each set and expression, whether the set leaves it out; none where there are no sets.
    pub left_out: Option<Vec<Vec<bool>>>,
}

/// The grouping sets of a GROUP BY.
///
/// # Errors
/// - grouping sets beside other expressions, which DataFusion has multiplied out before
pub(super) fn sets_of(group: &[Expr]) -> Result<Sets> {
    let exprs: Vec<Expr> = grouping_set_to_exprlist(group)?
        .into_iter()
        .cloned()
        .collect();
    let sets: Vec<Vec<&Expr>> = match group.first() {
        Some(Expr::GroupingSet(GroupingSet::GroupingSets(sets))) => {
            sets.iter().map(|set| set.iter().collect()).collect()
        }
        Some(Expr::GroupingSet(GroupingSet::Rollup(exprs))) => (0..=exprs.len())
            .map(|length| exprs.iter().take(length).collect())
            .collect(),
        Some(Expr::GroupingSet(GroupingSet::Cube(exprs))) => (0..1_usize << exprs.len().min(20))
            .map(|mask| {
                exprs
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| mask >> at & 1 == 1)
                    .map(|(_, expr)| expr)
                    .collect()
            })
            .collect(),
        _ => {
            return Ok(Sets {
                exprs,
                left_out: None,
            });
        }
    };
    let left_out = sets
        .iter()
        .map(|set| exprs.iter().map(|expr| !set.contains(&expr)).collect())
        .collect();
    Ok(Sets {
        exprs,
        left_out: Some(left_out),
    })
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::col;

    use super::*;

    #[test]
    fn a_rollup_leaves_out_one_more_expression_after_the_other() {
        let sets = sets_of(&[Expr::GroupingSet(GroupingSet::Rollup(vec![
            col("a"),
            col("b"),
        ]))])
        .unwrap();
        assert_eq!(sets.exprs, [col("a"), col("b")]);
        assert_eq!(
            sets.left_out,
            Some(vec![
                vec![true, true],
                vec![false, true],
                vec![false, false]
            ])
        );
    }

    #[test]
    fn a_cube_has_every_set() {
        let sets = sets_of(&[Expr::GroupingSet(GroupingSet::Cube(vec![
            col("a"),
            col("b"),
        ]))])
        .unwrap();
        assert_eq!(sets.left_out.unwrap().len(), 4);
    }

    #[test]
    fn plain_expressions_are_no_sets() {
        assert_eq!(sets_of(&[col("a"), col("b")]).unwrap().left_out, None);
    }
}
