//! What `scripts/embedding_fixtures.py` wrote.

use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Fixture {
    pub(crate) cases: Vec<Case>,
    #[serde(default)]
    pub(crate) blocks: Vec<String>,
}

#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) text: String,
    pub(crate) ids: Vec<u32>,
    pub(crate) vector: Vec<f32>,
}

impl Fixture {
    pub(crate) fn read(name: &str) -> Self {
        let text = std::fs::read(data().join(name)).unwrap();
        let fixture: Self = serde_json::from_slice(&text).unwrap();
        assert!(fixture.cases.len() >= 40);
        fixture
    }
}

pub(crate) fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}
