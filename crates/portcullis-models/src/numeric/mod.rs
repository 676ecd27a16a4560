//! The arithmetic that models share.

mod gemm;
mod math;

pub(crate) use gemm::{Machine, Panels, Rows, multiply};
pub(crate) use math::{add, gelu, normalize_rows, softmax_rows};
