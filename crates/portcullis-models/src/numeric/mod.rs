//! The arithmetic that models share.

mod activation;
mod gemm;
mod math;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_whole.rs")]
mod whole;

pub(crate) use activation::Activation;
pub(crate) use gemm::{Machine, Panels, Rows, multiply};
pub(crate) use math::{add, add_gated, normalize_rows, softmax_rows};
