//! How far tokens are from each other, and what that adds to attention.

use super::config::Config;
use crate::encoder::{Scoring, Sizes};
use crate::load::LoadError;
use crate::numeric::{Machine, Panels, Rows, multiply};
use crate::tensors::Tensors;

/// How distances are told apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Distances {
    /// There are rows for distances from `-span` to `span - 1`.
    pub(super) span: usize,
    /// Nothing where each distance has a row; else far ones share rows.
    pub(super) buckets: Option<usize>,
    pub(super) farthest: usize,
}

impl Distances {
    /// The row of a distance.
    fn row(self, distance: isize) -> usize {
        let span = self.span as isize;
        let bucket = match self.buckets {
            Some(buckets) => self.bucket(distance, buckets),
            None => distance,
        };
        (bucket.clamp(-span, span - 1) + span).unsigned_abs()
    }

    /// Each near distance for itself, farther ones by their logarithm. In the same steps and width as transformers,
    /// because the last digit decides where a bucket ends.
    fn bucket(self, distance: isize, buckets: usize) -> isize {
        let middle = buckets / 2;
        if distance.unsigned_abs() <= middle {
            return distance;
        }
        let far = (distance.unsigned_abs() as f32 / middle as f32).ln();
        let farthest = ((self.farthest as f64 - 1.0) / middle as f64) as f32;
        let bucket = (far / farthest.ln() * (middle as f32 - 1.0)).ceil() + middle as f32;
        // What is no number becomes 0, and what is too large the largest.
        let bucket = bucket.min(self.span as f32) as isize;
        distance.signum() * bucket
    }
}

/// A layer's distances, a column for each.
pub(super) struct Relative {
    /// What queries are multiplied with.
    keys: Option<Vec<f32>>,
    /// What keys are multiplied with, already scaled.
    queries: Option<Vec<f32>>,
}

impl Relative {
    pub(super) fn read(
        tensors: &Tensors<'_>,
        name: &str,
        config: &Config,
        distances: Option<&[f32]>,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let hidden = config.sizes.hidden;
        let scale = config.asks.scale(hidden / config.sizes.heads);
        let project = |own: &str, shared: &str, scale: f32| {
            let Some(distances) = distances else {
                return Ok(None);
            };
            let part = if config.shares_projections {
                shared
            } else {
                own
            };
            let part = format!("{name}.attention.self.{part}");
            let (weight, bias) = tensors.dense(&part, hidden, hidden)?;
            let count = distances.len() / hidden;
            let mut left = Rows::empty();
            left.set(machine, count, hidden, distances, hidden);
            let mut rows = vec![0.0; distances.len()];
            let panels = Panels::of_weights(machine, &weight, &bias);
            multiply(machine, &left, &panels, &mut rows, hidden);
            let columns = (0..hidden)
                .flat_map(|column| {
                    rows.iter()
                        .skip(column)
                        .step_by(hidden)
                        .map(|number| number * scale)
                })
                .collect();
            Ok(Some(columns))
        };
        Ok(Self {
            keys: if config.asks.content_to_position {
                project("pos_key_proj", "key_proj", 1.0)?
            } else {
                None
            },
            queries: if config.asks.position_to_content {
                project("pos_query_proj", "query_proj", scale)?
            } else {
                None
            },
        })
    }
}

/// Which rows of distances a pass needs, and where they are among these.
pub(super) struct Places {
    longest: usize,
    /// Of all rows.
    span: usize,
    first: usize,
    count: usize,
    /// For a key so many places after its query, less `longest - 1`.
    table: Vec<usize>,
}

impl Places {
    pub(super) fn new(distances: Distances, longest: usize) -> Self {
        let reach = longest.max(1) as isize - 1;
        let rows: Vec<usize> = (-reach..=reach)
            .map(|after| distances.row(-after))
            .collect();
        let first = rows.iter().copied().min().unwrap_or_default();
        let last = rows.iter().copied().max().unwrap_or_default();
        Self {
            longest: longest.max(1),
            span: 2 * distances.span,
            first,
            count: last - first + 1,
            table: rows.into_iter().map(|row| row - first).collect(),
        }
    }
}

/// Scores to which distances contribute.
pub(super) struct Disentangled<'a> {
    places: Option<Places>,
    pub(super) relative: Option<&'a Relative>,
    /// Of each row's query with each distance.
    by_query: Vec<f32>,
    /// Of each row's key with each distance.
    by_key: Vec<f32>,
    left: Rows,
    right: Panels,
}

impl Disentangled<'_> {
    pub(super) fn new(places: Option<Places>) -> Self {
        Self {
            places,
            relative: None,
            by_query: Vec::new(),
            by_key: Vec::new(),
            left: Rows::empty(),
            right: Panels::empty(),
        }
    }
}

impl Scoring for Disentangled<'_> {
    fn begin_head(&mut self, machine: Machine, wide: &[f32], start: usize, sizes: Sizes) {
        let (Some(places), Some(relative)) = (&self.places, self.relative) else {
            return;
        };
        let (hidden, head) = (sizes.hidden, sizes.hidden / sizes.heads);
        let rows = wide.len() / (3 * hidden);
        for (distances, out, from) in [
            (&relative.keys, &mut self.by_query, start),
            (&relative.queries, &mut self.by_key, hidden + start),
        ] {
            out.clear();
            let Some(distances) = distances.as_ref().filter(|_| rows > 0) else {
                continue;
            };
            out.resize(rows * places.count, 0.0);
            let own = &distances[start * places.span + places.first..];
            self.left
                .set(machine, rows, head, &wide[from..], 3 * hidden);
            self.right
                .set(machine, head, places.count, own, places.span);
            multiply(machine, &self.left, &self.right, out, places.count);
        }
    }

    fn adjust(&self, first: usize, length: usize, scores: &mut [f32]) {
        let Some(places) = &self.places else {
            return;
        };
        let count = places.count;
        for (query, scores) in scores.chunks_exact_mut(length).enumerate() {
            let table = &places.table[places.longest - 1 - query..][..length];
            if !self.by_query.is_empty() {
                let own = &self.by_query[(first + query) * count..][..count];
                for (score, &place) in scores.iter_mut().zip(table) {
                    *score += own[place];
                }
            }
            if !self.by_key.is_empty() {
                let keys = self.by_key[first * count..].chunks_exact(count);
                for ((score, &place), key) in scores.iter_mut().zip(table).zip(keys) {
                    *score += key[place];
                }
            }
        }
    }
}
