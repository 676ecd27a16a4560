//! A file of numbers with names and shapes.

use std::path::Path;

use safetensors::{Dtype, SafeTensors};

use crate::load::LoadError;

/// The tensors of a file.
pub(crate) struct Tensors<'a> {
    path: &'a Path,
    file: SafeTensors<'a>,
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
        let file = SafeTensors::deserialize(bytes)
            .map_err(|error| LoadError::unusable(path, error.to_string()))?;
        Ok(Self {
            path,
            file,
            prefix: "",
        })
    }

    /// Whether there is such a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.file.tensor(&format!("{}{name}", self.prefix)).is_ok()
    }

    pub(crate) fn dense(
        &self,
        name: &str,
        out: usize,
        into: usize,
    ) -> Result<(Vec<f32>, Vec<f32>), LoadError> {
        Ok((
            self.get(&format!("{name}.weight"), &[out, into])?,
            self.get(&format!("{name}.bias"), &[out])?,
        ))
    }

    pub(crate) fn norm(&self, name: &str, width: usize) -> Result<Norm, LoadError> {
        Ok(Norm {
            weight: self.get(&format!("{name}.weight"), &[width])?,
            bias: self.get(&format!("{name}.bias"), &[width])?,
        })
    }

    pub(crate) fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let name = format!("{}{name}", self.prefix);
        let unusable = |why: String| LoadError::unusable(self.path, format!("`{name}` {why}"));
        let tensor = self
            .file
            .tensor(&name)
            .map_err(|_| unusable(format!("is missing: it must be F32 of {shape:?}")))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
            return Err(unusable(format!(
                "is {:?} of {:?}: it must be F32 of {shape:?}",
                tensor.dtype(),
                tensor.shape()
            )));
        }
        let numbers: Vec<f32> = tensor
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        if !numbers.iter().all(|number| number.is_finite()) {
            return Err(unusable("has numbers that are not finite".to_owned()));
        }
        Ok(numbers)
    }
}
