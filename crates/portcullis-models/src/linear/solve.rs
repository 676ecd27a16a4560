//! Logistic regression: the weights that make the examples' labels most likely, kept small.
//!
//! L-BFGS in double precision. The loss is convex, so that there is one answer, and nothing in here is random: the
//! same examples give the same weights.

/// Vectors with their labels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem<'a> {
    /// All of one length.
    pub(super) vectors: &'a [Vec<f32>],
    /// For each vector its label, by number.
    pub(super) labels: &'a [usize],
    /// Which of them count, by their places.
    pub(super) members: &'a [usize],
    /// How many labels there are; two at least.
    pub(super) classes: usize,
    /// How much the examples weigh against small weights.
    pub(super) c: f64,
}

/// What is learned: a row for each label, or with two labels one row, for the second. A row's last number is its bias.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Weights {
    pub(super) rows: Vec<Vec<f64>>,
}

const MOST_STEPS: usize = 500;
const REMEMBERED: usize = 12;
/// How steep the mean loss may still be at the end, along any weight.
const FLAT: f64 = 1e-7;

/// Rows of weights for so many labels.
pub(super) const fn rows(classes: usize) -> usize {
    if classes == 2 { 1 } else { classes }
}

/// How likely each label is, from the rows' sums.
pub(super) fn probabilities(sums: &[f64]) -> Vec<f64> {
    if let [sum] = sums {
        let second = sigmoid(*sum);
        return vec![sigmoid(-sum), second];
    }
    let most = sums.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = sums.iter().map(|sum| (sum - most).exp()).collect();
    let all: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / all).collect()
}

fn sigmoid(sum: f64) -> f64 {
    1.0 / (1.0 + (-sum).exp())
}

impl Weights {
    /// How likely each label is.
    pub(super) fn judge(&self, vector: &[f32]) -> Vec<f64> {
        let sums: Vec<f64> = self.rows.iter().map(|row| sum(row, vector)).collect();
        probabilities(&sums)
    }
}

fn sum(row: &[f64], vector: &[f32]) -> f64 {
    let (weights, bias) = row.split_at(vector.len());
    let products = weights.iter().zip(vector);
    bias[0] + products.map(|(w, &x)| w * f64::from(x)).sum::<f64>()
}

impl Problem<'_> {
    /// Finds the weights.
    pub(super) fn solve(&self) -> Weights {
        let width = self.vectors.first().map_or(0, Vec::len) + 1;
        let mut at = vec![0.0; rows(self.classes) * width];
        let (mut loss, mut slope) = self.loss(&at, width);
        let mut memory: Vec<Step> = Vec::new();
        for _ in 0..MOST_STEPS {
            if slope.iter().all(|one| one.abs() <= FLAT) {
                break;
            }
            let mut way = descent(&slope, &memory);
            let mut steep = dot(&way, &slope);
            if steep >= 0.0 {
                // Rounding has spoilt what is remembered: straight down instead.
                memory.clear();
                way = slope.iter().map(|one| -one).collect();
                steep = -dot(&slope, &slope);
            }
            let first = if memory.is_empty() {
                1.0 / (1.0 + dot(&slope, &slope).sqrt())
            } else {
                1.0
            };
            let Some((next, next_loss, next_slope)) =
                self.line_search(&at, &way, loss, steep, first, width)
            else {
                break;
            };
            let moved: Vec<f64> = next.iter().zip(&at).map(|(a, b)| a - b).collect();
            let bent: Vec<f64> = next_slope.iter().zip(&slope).map(|(a, b)| a - b).collect();
            let curvature = dot(&moved, &bent);
            if curvature > 1e-300 {
                if memory.len() == REMEMBERED {
                    memory.remove(0);
                }
                memory.push(Step {
                    moved,
                    bent,
                    curvature,
                });
            }
            (at, loss, slope) = (next, next_loss, next_slope);
        }
        Weights {
            rows: at.chunks(width).map(<[f64]>::to_vec).collect(),
        }
    }

    /// Goes down a line until it has gone down enough. None where it goes down no more.
    fn line_search(
        &self,
        at: &[f64],
        way: &[f64],
        loss: f64,
        steep: f64,
        first: f64,
        width: usize,
    ) -> Option<(Vec<f64>, f64, Vec<f64>)> {
        let mut length = first;
        for _ in 0..40 {
            let next: Vec<f64> = at.iter().zip(way).map(|(a, w)| a + length * w).collect();
            let (next_loss, next_slope) = self.loss(&next, width);
            if next_loss <= loss + 1e-4 * length * steep {
                return Some((next, next_loss, next_slope));
            }
            length *= 0.5;
        }
        None
    }

    /// The mean loss and its slope. Biases may be as large as they like.
    fn loss(&self, at: &[f64], width: usize) -> (f64, Vec<f64>) {
        let count = self.members.len().max(1) as f64;
        let small = 1.0 / (self.c * count);
        let mut slope = vec![0.0; at.len()];
        let mut loss = 0.0;
        for (row, slope) in at.chunks(width).zip(slope.chunks_mut(width)) {
            for (weight, slope) in row[..width - 1].iter().zip(slope) {
                loss += 0.5 * small * weight * weight;
                *slope = small * weight;
            }
        }
        let mut sums = vec![0.0; rows(self.classes)];
        for &member in self.members {
            let (vector, label) = (&self.vectors[member], self.labels[member]);
            for (total, row) in sums.iter_mut().zip(at.chunks(width)) {
                *total = sum(row, vector);
            }
            let likely = probabilities(&sums);
            loss -= likely[label].max(f64::MIN_POSITIVE).ln() / count;
            // With two labels the one row is the second's.
            let first = likely.len() - sums.len();
            let wrongs = likely.iter().enumerate().skip(first);
            for ((class, likely), slope) in wrongs.zip(slope.chunks_mut(width)) {
                let wrong = (likely - f64::from(u8::from(class == label))) / count;
                let (slopes, bias) = slope.split_at_mut(width - 1);
                for (slope, &x) in slopes.iter_mut().zip(vector) {
                    *slope += wrong * f64::from(x);
                }
                bias[0] += wrong;
            }
        }
        (loss, slope)
    }
}

/// A step that was taken, and how the slope changed with it.
struct Step {
    moved: Vec<f64>,
    bent: Vec<f64>,
    curvature: f64,
}

/// Where to go: down, stretched by the curvature that the last steps have met.
fn descent(slope: &[f64], memory: &[Step]) -> Vec<f64> {
    let mut way: Vec<f64> = slope.iter().map(|one| -one).collect();
    let mut shares = Vec::with_capacity(memory.len());
    for step in memory.iter().rev() {
        let share = dot(&step.moved, &way) / step.curvature;
        add(&mut way, -share, &step.bent);
        shares.push(share);
    }
    if let Some(last) = memory.last() {
        let scale = last.curvature / dot(&last.bent, &last.bent);
        for one in &mut way {
            *one *= scale;
        }
    }
    for (step, share) in memory.iter().zip(shares.into_iter().rev()) {
        let back = dot(&step.bent, &way) / step.curvature;
        add(&mut way, share - back, &step.moved);
    }
    way
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, what: &[f64]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += factor * what;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn solve(vectors: &[Vec<f32>], labels: &[usize], classes: usize, c: f64) -> Weights {
        let members: Vec<usize> = (0..vectors.len()).collect();
        Problem {
            vectors,
            labels,
            members: &members,
            classes,
            c,
        }
        .solve()
    }

    /// scikit-learn 1.9: `LogisticRegression(C=…, tol=1e-12)` on the same points.
    #[test]
    fn weights_are_those_of_another_library() {
        let vectors = [
            vec![1.0, 0.2],
            vec![0.8, -0.4],
            vec![0.3, 0.9],
            vec![-0.5, 0.7],
            vec![-1.0, -0.3],
            vec![-0.2, -0.9],
        ];
        for (labels, classes, c, expected) in SCIKIT {
            let found = solve(&vectors, labels, *classes, *c);
            assert_eq!(found.rows.len(), expected.len());
            for (row, expected) in found.rows.iter().zip(*expected) {
                for (found, expected) in row.iter().zip(expected) {
                    assert!((found - expected).abs() < 2e-5, "{found} {expected}");
                }
            }
        }
    }

    type Case = (&'static [usize], usize, f64, &'static [[f64; 3]]);
    const SCIKIT: &[Case] = &[
        (
            &[0, 0, 1, 1, 1, 0],
            2,
            1.0,
            &[[-0.850_514, 0.800_551, 0.031_154]],
        ),
        (
            &[0, 0, 1, 1, 1, 0],
            2,
            50.0,
            &[[-4.016_812, 4.239_480, 0.190_260]],
        ),
        (
            &[0, 0, 1, 1, 2, 2],
            3,
            1.0,
            &[
                [0.874_265, -0.186_102, -0.057_734],
                [-0.211_962, 0.872_518, 0.014_436],
                [-0.662_303, -0.686_415, 0.043_298],
            ],
        ),
        (
            &[0, 0, 1, 1, 2, 2],
            3,
            30.0,
            &[
                [3.075_215, -0.769_177, -0.282_188],
                [-0.864_470, 3.148_317, 0.083_961],
                [-2.210_745, -2.379_140, 0.198_227],
            ],
        ),
    ];

    #[test]
    fn without_vectors_that_tell_the_shares_are_learned() {
        let vectors = vec![vec![0.0, 0.0]; 4];
        let found = solve(&vectors, &[0, 1, 1, 1], 2, 1.0).judge(&[0.0, 0.0]);
        assert!((found[1] - 0.75).abs() < 1e-6, "{found:?}");
        let found = solve(&vectors, &[0, 1, 2, 2], 3, 1.0).judge(&[0.0, 0.0]);
        assert!((found[2] - 0.5).abs() < 1e-6, "{found:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Whatever the points, the end is flat: no small change of a weight makes the loss less.
        #[test]
        fn the_end_is_the_lowest_place(
            points in prop::collection::vec((prop::array::uniform3(-1.0..1.0_f32), 0_usize..3), 3..30),
            c in prop::sample::select(vec![0.1, 1.0, 100.0]),
            classes in 2_usize..=3,
        ) {
            let vectors: Vec<Vec<f32>> = points.iter().map(|(vector, _)| vector.to_vec()).collect();
            let labels: Vec<usize> = points.iter().map(|(_, label)| label % classes).collect();
            let members: Vec<usize> = (0..vectors.len()).collect();
            let problem = Problem { vectors: &vectors, labels: &labels, members: &members, classes, c };
            let found: Vec<f64> = problem.solve().rows.concat();
            prop_assert!(found.iter().all(|weight| weight.is_finite()));
            let (lowest, _) = problem.loss(&found, 4);
            for place in 0..found.len() {
                for change in [-1e-2, 1e-2] {
                    let mut other = found.clone();
                    other[place] += change;
                    prop_assert!(problem.loss(&other, 4).0 >= lowest - 1e-9);
                }
            }
        }
    }
}
