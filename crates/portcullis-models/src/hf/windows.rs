//! How a long text is cut.

use super::Options;

/// Where windows begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// Tokens of a window, with those that the model adds.
    pub(super) length: usize,
    /// Tokens of the text in a window.
    own: usize,
    /// From one window's beginning to the next.
    step: usize,
    most: usize,
}

impl Plan {
    /// `positions` is the longest text that the model takes, `added` the number of tokens that it adds.
    pub(super) fn new(options: Options, positions: usize, added: usize) -> Result<Self, String> {
        let length = options.window.min(positions);
        let own = length.saturating_sub(added);
        if own == 0 {
            return Err(format!(
                "a window of {length} tokens has no room for a text beside {added} that the model adds"
            ));
        }
        if options.max_windows == 0 {
            return Err("`max_windows` is 0: it must be 1 or more".to_owned());
        }
        Ok(Self {
            length,
            own,
            step: own - options.overlap.min(own / 2),
            most: options.max_windows,
        })
    }

    /// How many tokens of a text all windows hold.
    pub(super) fn most(self) -> usize {
        self.step
            .saturating_mul(self.most - 1)
            .saturating_add(self.own)
    }

    /// At least one window, and one empty only of an empty text.
    pub(super) fn cut(self, ids: &[u32]) -> impl Iterator<Item = &[u32]> {
        let count = 1 + ids.len().saturating_sub(self.own).div_ceil(self.step);
        (0..count.min(self.most)).map(move |window| {
            let start = window * self.step;
            &ids[start..ids.len().min(start + self.own)]
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(window: usize, overlap: usize, max_windows: usize) -> Plan {
        let options = Options {
            window,
            overlap,
            max_windows,
            ..Options::default()
        };
        Plan::new(options, 10, 2).unwrap()
    }

    #[test]
    fn windows_overlap_and_end_with_the_text() {
        let cut = |plan: Plan, length: u32| -> Vec<Vec<u32>> {
            let ids: Vec<u32> = (0..length).collect();
            plan.cut(&ids).map(<[u32]>::to_vec).collect()
        };
        assert_eq!(cut(plan(6, 1, 9), 0), [[0_u32; 0]]);
        assert_eq!(cut(plan(6, 1, 9), 4), [[0, 1, 2, 3]]);
        assert_eq!(cut(plan(6, 1, 9), 5), [vec![0, 1, 2, 3], vec![3, 4]]);
        assert_eq!(cut(plan(6, 1, 9), 7), [[0, 1, 2, 3], [3, 4, 5, 6]]);
        // No more than half is shared, and no window is longer than the model.
        assert_eq!(cut(plan(6, 99, 9), 6), [[0, 1, 2, 3], [2, 3, 4, 5]]);
        assert_eq!(
            cut(plan(99, 0, 9), 9),
            [vec![0, 1, 2, 3, 4, 5, 6, 7], vec![8]]
        );
    }

    #[test]
    fn a_window_without_room_is_refused() {
        let options = |window, max_windows| Options {
            window,
            max_windows,
            ..Options::default()
        };
        for (options, expected) in [
            (
                options(2, 1),
                "a window of 2 tokens has no room for a text beside 2 that the model adds",
            ),
            (options(9, 0), "`max_windows` is 0: it must be 1 or more"),
        ] {
            assert_eq!(Plan::new(options, 10, 2).unwrap_err(), expected);
        }
    }

    proptest! {
        #[test]
        fn every_token_that_fits_is_in_a_window(
            window in 3_usize..12, overlap in 0_usize..12, most in 1_usize..6, length in 0_u32..99,
        ) {
            let plan = plan(window, overlap, most);
            let ids: Vec<u32> = (0..length).take(plan.most()).collect();
            let windows: Vec<&[u32]> = plan.cut(&ids).collect();
            prop_assert!(windows.len() <= most);
            let mut seen: Vec<u32> = windows.concat();
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen, ids);
        }
    }
}
