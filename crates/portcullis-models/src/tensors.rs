//! A file of numbers with names and shapes.

use std::path::Path;
use std::rc::Rc;

use safetensors::tensor::{Metadata, TensorView};
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::load::LoadError;
use crate::numeric::{Machine, Panels};

/// The tensors of a file.
pub(crate) struct Tensors<'a> {
    path: &'a Path,
    file: Rc<SafeTensors<'a>>,
    notes: Rc<Metadata>,
    /// What every name begins with.
    pub(crate) prefix: &'static str,
}

/// What a normalised row is scaled and shifted by.
pub(crate) struct Norm {
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

impl<'a> Tensors<'a> {
    /// `path` is where the bytes come from, for errors.
    pub(crate) fn parse(path: &'a Path, bytes: &'a [u8]) -> Result<Self, LoadError> {
        let unusable = |error: SafeTensorError| LoadError::unusable(path, error.to_string());
        let (_, notes) = SafeTensors::read_metadata(bytes).map_err(unusable)?;
        Ok(Self {
            path,
            file: Rc::new(SafeTensors::deserialize(bytes).map_err(unusable)?),
            notes: Rc::new(notes),
            prefix: "",
        })
    }

    /// The tensors whose names begin so, without that.
    #[cfg(feature = "hf")]
    pub(crate) fn under(&self, prefix: &'static str) -> Self {
        Self {
            path: self.path,
            file: Rc::clone(&self.file),
            notes: Rc::clone(&self.notes),
            prefix,
        }
    }

    /// Whether there is such a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.file.tensor(&format!("{}{name}", self.prefix)).is_ok()
    }

    /// What the file says of itself under a name.
    pub(crate) fn note(&self, name: &str) -> Result<&str, LoadError> {
        let notes = self.notes.metadata().as_ref();
        let note = notes.and_then(|notes| notes.get(name));
        note.map(String::as_str).ok_or_else(|| {
            LoadError::unusable(self.path, format!("`__metadata__` has no `{name}`"))
        })
    }

    /// The numbers of a tensor of eight bits each.
    pub(crate) fn bytes(&self, name: &str, shape: &[usize]) -> Result<&'a [u8], LoadError> {
        let tensor = self.tensor(name, Dtype::I8, shape)?;
        if tensor.dtype() != Dtype::I8 || tensor.shape() != shape {
            let why = format!(
                "`{}{name}` is {:?} of {:?}: it must be I8 of {shape:?}",
                self.prefix,
                tensor.dtype(),
                tensor.shape()
            );
            return Err(LoadError::unusable(self.path, why));
        }
        Ok(tensor.data())
    }

    /// The shape of a tensor, if there is one of this name.
    #[cfg(feature = "hf")]
    pub(crate) fn shape(&self, name: &str) -> Option<Vec<usize>> {
        let name = format!("{}{name}", self.prefix);
        Some(self.file.tensor(&name).ok()?.shape().to_vec())
    }

    /// What all numbers of the file take as F32, in bytes.
    #[cfg(feature = "hf")]
    pub(crate) fn size(&self) -> u64 {
        let numbers = |shape: &[usize]| {
            let product = shape.iter().try_fold(1_u64, |product, &size| {
                product.checked_mul(u64::try_from(size).ok()?)
            });
            product.unwrap_or(u64::MAX)
        };
        let tensors = self.file.tensors().into_iter();
        tensors
            .map(|(_, tensor)| numbers(tensor.shape()).saturating_mul(4))
            .fold(0, u64::saturating_add)
    }

    #[cfg(feature = "hf")]
    pub(crate) fn dense(
        &self,
        name: &str,
        out: usize,
        into: usize,
    ) -> Result<(Vec<f32>, Vec<f32>), LoadError> {
        self.dense_with(name, out, into, true)
    }

    /// Without a bias, it is zeros.
    #[cfg(feature = "hf")]
    pub(crate) fn dense_with(
        &self,
        name: &str,
        out: usize,
        into: usize,
        has_bias: bool,
    ) -> Result<(Vec<f32>, Vec<f32>), LoadError> {
        let weight = self.get(&format!("{name}.weight"), &[out, into])?;
        Ok((weight, self.bias(name, out, has_bias)?))
    }

    /// What a product with these, side by side, multiplies with: each part is a name and a factor. With scales, they
    /// have eight bits a number.
    pub(crate) fn panels(
        &self,
        machine: Machine,
        parts: &[(String, f32)],
        out: usize,
        into: usize,
    ) -> Result<Panels, LoadError> {
        let parts_times = |part: &str, shape: &[usize]| {
            let mut all = Vec::new();
            for (name, factor) in parts {
                let numbers = self.get(&format!("{name}.{part}"), shape)?;
                all.extend(numbers.into_iter().map(|number| factor * number));
            }
            Ok(all)
        };
        let has_scale = |(name, _): &(String, f32)| self.has(&format!("{name}.scale"));
        if !parts.iter().any(has_scale) {
            let weights = parts_times("weight", &[out, into])?;
            let bias = parts_times("bias", &[out])?;
            return Ok(Panels::of_weights(machine, &weights, &bias));
        }
        let mut weights = Vec::new();
        for (name, _) in parts {
            weights.extend_from_slice(self.bytes(&format!("{name}.weight"), &[out, into])?);
        }
        let units = parts_times("scale", &[out])?;
        let bias = parts_times("bias", &[out])?;
        Ok(Panels::of_eight_bits(machine, &weights, &units, &bias))
    }

    pub(crate) fn norm(&self, name: &str, width: usize) -> Result<Norm, LoadError> {
        self.norm_with(name, width, true)
    }

    /// Without a bias, it is zeros.
    pub(crate) fn norm_with(
        &self,
        name: &str,
        width: usize,
        has_bias: bool,
    ) -> Result<Norm, LoadError> {
        Ok(Norm {
            weight: self.get(&format!("{name}.weight"), &[width])?,
            bias: self.bias(name, width, has_bias)?,
        })
    }

    fn bias(&self, name: &str, width: usize, has_bias: bool) -> Result<Vec<f32>, LoadError> {
        if has_bias {
            self.get(&format!("{name}.bias"), &[width])
        } else {
            Ok(vec![0.0; width])
        }
    }

    pub(crate) fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let unusable =
            |why: String| LoadError::unusable(self.path, format!("`{}{name}` {why}", self.prefix));
        let tensor = self.tensor(name, Dtype::F32, shape)?;
        let kind = tensor.dtype();
        let numbers = numbers(kind, tensor.data());
        let Some(numbers) = numbers.filter(|_| tensor.shape() == shape) else {
            // Of another shape, its own kind would have done.
            let expected = if is_float(kind) { kind } else { Dtype::F32 };
            return Err(unusable(format!(
                "is {kind:?} of {:?}: it must be {expected:?} of {shape:?}",
                tensor.shape()
            )));
        };
        if !numbers.iter().all(|number| number.is_finite()) {
            return Err(unusable("has numbers that are not finite".to_owned()));
        }
        Ok(numbers)
    }

    /// One of any kind and shape; what it must be is for errors.
    fn tensor(
        &self,
        name: &str,
        kind: Dtype,
        shape: &[usize],
    ) -> Result<TensorView<'a>, LoadError> {
        let name = format!("{}{name}", self.prefix);
        self.file.tensor(&name).map_err(|_| {
            let why = format!("`{name}` is missing: it must be {kind:?} of {shape:?}");
            LoadError::unusable(self.path, why)
        })
    }
}

fn is_float(kind: Dtype) -> bool {
    matches!(kind, Dtype::F32 | Dtype::F16 | Dtype::BF16)
}

fn numbers(kind: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    let halves = || bytes.as_chunks().0.iter().copied().map(u16::from_le_bytes);
    Some(match kind {
        Dtype::F32 => {
            let chunks = bytes.as_chunks().0.iter().copied();
            chunks.map(f32::from_le_bytes).collect()
        }
        Dtype::F16 => halves().map(half).collect(),
        // The upper half of an F32.
        Dtype::BF16 => halves()
            .map(|bits| f32::from_bits(u32::from(bits) << 16))
            .collect(),
        _ => return None,
    })
}

/// Five bits of exponent and ten of fraction, as F32.
fn half(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, fraction) = (u32::from(bits >> 10) & 31, u32::from(bits) & 0x3FF);
    let magnitude = match exponent {
        // Too small for a leading one: a count of 2⁻²⁴.
        0 => (fraction as f32 / 16_777_216.0).to_bits(),
        31 => 0x7F80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;

    #[test]
    fn halves_are_what_ieee_754_says() {
        for (bits, expected) in [
            (0x0000, 0.0),
            (0x8000, -0.0),
            (0x3C00, 1.0),
            (0xC000, -2.0),
            (0x3555, 0.333_251_95),
            (0x7BFF, 65504.0),
            (0x0400, 6.103_515_6e-5),
            (0x03FF, 6.097_555e-5),
            (0x0001, 5.960_464_5e-8),
            (0x7C00, f32::INFINITY),
        ] {
            assert_eq!(half(bits).to_bits(), f32::to_bits(expected), "{bits:04x}");
        }
        assert!(half(0x7E00).is_nan());
    }

    #[test]
    fn floats_of_two_and_four_bytes_are_read_and_others_refused() {
        let bytes = [0x00, 0x3F, 0x80, 0x3F, 0x00, 0x3F, 0x80, 0x3F];
        for (kind, shape, expected) in [
            (Dtype::F32, vec![2], Ok(vec![1.001_922_6, 1.001_922_6])),
            (Dtype::BF16, vec![4], Ok(vec![0.5, 1.0, 0.5, 1.0])),
            (Dtype::F16, vec![4], Ok(vec![1.75, 1.875, 1.75, 1.875])),
            (
                Dtype::I16,
                vec![4],
                Err("a: `t` is I16 of [4]: it must be F32 of [4]"),
            ),
            (
                Dtype::F16,
                vec![2, 2],
                Err("a: `t` is F16 of [2, 2]: it must be F16 of [4]"),
            ),
        ] {
            let view = TensorView::new(kind, shape.clone(), &bytes).unwrap();
            let file = safetensors::serialize([("t", view)], None).unwrap();
            let tensors = Tensors::parse(Path::new("a"), &file).unwrap();
            let expected_shape = if kind == Dtype::F32 { [2] } else { [4] };
            let found = tensors.get("t", &expected_shape);
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{kind:?}");
        }
    }
}
