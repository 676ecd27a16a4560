//! The functions between products.

use super::gemm::Machine;
use super::math::gelu;

/// A function of single numbers, by its name in `transformers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    Gelu,
    #[cfg(feature = "hf")]
    Relu,
    Tanh,
}

impl Activation {
    #[cfg(feature = "hf")]
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "gelu" => Self::Gelu,
            "relu" => Self::Relu,
            "tanh" => Self::Tanh,
            _ => return None,
        })
    }

    pub(crate) fn apply(self, machine: Machine, numbers: &mut [f32]) {
        match self {
            Self::Gelu => machine.widely(
                #[inline(always)]
                || gelu(numbers),
            ),
            #[cfg(feature = "hf")]
            Self::Relu => numbers
                .iter_mut()
                .for_each(|number| *number = number.max(0.0)),
            Self::Tanh => numbers
                .iter_mut()
                .for_each(|number| *number = number.tanh()),
        }
    }
}
