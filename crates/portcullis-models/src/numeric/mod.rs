//! The arithmetic that models share.

/// Calls `panel.times` with the number of a block's rows as a constant, so that all sums are in registers.
macro_rules! times_rows {
    ($rows:expr, $panel:ident, $($argument:expr),+) => {
        match $rows {
            1 => $panel.times::<1>($($argument),+),
            2 => $panel.times::<2>($($argument),+),
            3 => $panel.times::<3>($($argument),+),
            4 => $panel.times::<4>($($argument),+),
            5 => $panel.times::<5>($($argument),+),
            6 => $panel.times::<6>($($argument),+),
            7 => $panel.times::<7>($($argument),+),
            8 => $panel.times::<8>($($argument),+),
            9 => $panel.times::<9>($($argument),+),
            10 => $panel.times::<10>($($argument),+),
            11 => $panel.times::<11>($($argument),+),
            _ => $panel.times::<12>($($argument),+),
        }
    };
}

mod activation;
mod gemm;
mod math;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_whole.rs")]
mod whole;

pub(crate) use activation::Activation;
pub(crate) use gemm::{Machine, Panels, Rows, multiply};
pub(crate) use math::{add, add_gated, normalize_rows, softmax_rows};
