//! The arithmetic that models share.

mod activation;
mod gemm;
mod math;
mod whole;

pub(crate) use activation::Activation;
pub(crate) use gemm::{Machine, Panels, Rows, multiply};
pub(crate) use math::{add, add_gated, normalize_rows, softmax_rows};
