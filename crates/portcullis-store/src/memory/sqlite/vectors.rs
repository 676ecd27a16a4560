//! Vectors as they are kept: a byte a component, and one scale for all.

/// A vector, a quarter as long.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Codes {
    pub(super) scale: f32,
    pub(super) codes: Vec<u8>,
}

impl Codes {
    /// The nearest there is.
    pub(super) fn of(vector: &[f32]) -> Self {
        let most = vector.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let codes: Vec<i8> = vector
            .iter()
            .map(|x| (x / most.max(f32::MIN_POSITIVE) * 127.0).round() as i8)
            .collect();
        let length = |squares: f32| squares.sqrt();
        let of_vector = length(vector.iter().map(|x| x * x).sum());
        let of_codes = length(codes.iter().map(|code| f32::from(*code).powi(2)).sum());
        Self {
            // So that the length stays what it was, which angles are measured by.
            scale: if of_codes > 0.0 {
                of_vector / of_codes
            } else {
                0.0
            },
            codes: codes.iter().flat_map(|code| code.to_le_bytes()).collect(),
        }
    }

    /// As it was, but for rounding.
    pub(super) fn restore(scale: f32, codes: &[u8]) -> Vec<f32> {
        let codes = codes.iter().map(|code| i8::from_le_bytes([*code]));
        codes.map(|code| f32::from(code) * scale).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_keeps_its_length_and_its_direction() {
        let vector: Vec<f32> = (0..384_i16)
            .map(|n| f32::from(n * 37 % 101) - 50.0)
            .collect();
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        let vector: Vec<f32> = vector.iter().map(|x| x / length).collect();
        let codes = Codes::of(&vector);
        let restored = Codes::restore(codes.scale, &codes.codes);
        let cosine: f32 = vector.iter().zip(&restored).map(|(a, b)| a * b).sum();
        assert!((cosine - 1.0).abs() < 1e-4, "{cosine}");
        let length: f32 = restored.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-4, "{length}");
    }

    #[test]
    fn nothing_stays_nothing() {
        let codes = Codes::of(&[0.0; 3]);
        assert_eq!(Codes::restore(codes.scale, &codes.codes), [0.0; 3]);
    }
}
