//! Vectors of length one.

/// Makes a vector as long as one. One that points nowhere, or has a number that is none, becomes all zeros.
pub(crate) fn make_unit(vector: &mut [f32]) {
    // Twice as wide, so that neither huge nor tiny numbers leave the range when squared. Eight sums at a time
    // do not wait for each other.
    let (chunks, rest) = vector.as_chunks::<8>();
    let mut sums = [0.0_f64; 8];
    for chunk in chunks {
        for (sum, &number) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(number) * f64::from(number);
        }
    }
    for (sum, &number) in sums.iter_mut().zip(rest) {
        *sum += f64::from(number) * f64::from(number);
    }
    let length = sums.iter().sum::<f64>().sqrt();
    if length > 0.0 && length.is_finite() {
        let factor = length.recip();
        for number in vector {
            *number = (f64::from(*number) * factor) as f32;
        }
    } else {
        vector.fill(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_become_as_long_as_one_or_nothing() {
        for (mut vector, expected) in [
            ([3.0, -4.0], [0.6, -0.8]),
            ([3e-30, 4e-30], [0.6, 0.8]),
            ([3e30, 4e30], [0.6, 0.8]),
            ([0.0, 0.0], [0.0, 0.0]),
            ([f32::NAN, 1.0], [0.0, 0.0]),
            ([f32::INFINITY, 1.0], [0.0, 0.0]),
        ] {
            make_unit(&mut vector);
            for (number, expected) in vector.into_iter().zip(expected) {
                assert!((number - expected).abs() < 1e-6, "{vector:?}");
            }
        }
    }
}
