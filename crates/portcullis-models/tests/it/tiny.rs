//! A classifier's file in small, to be damaged.

use std::fmt::Write as _;

const PIECES: usize = 29_528;
const CONFIG: &str = r#"{"name":"tiny","version":"1","pieces":29528,"dim":2,"bigrams":4,"kernel":3,"dilations":[1,2],"heads":1,
    "hidden":2,"window":8,"stride":4,"labels":["benign","jb_override"],"calibration":{"scale":1,"user":0,"tool":0},"threshold":0.5,
    "tokenizer_sha256":"3353ab87c2cada4fc4b6960de1867fa5af86c64345a49e969a5411f377cae461",
    "second":{"layers":1,"width":4,"heads":2,"inner":6,"from":0.000001,"calibration":{"scale":1,"user":0,"tool":0}}}"#;

/// Header and numbers, and where the header ends and the large tables begin. It looks again at nearly everything.
pub(crate) fn file() -> (Vec<u8>, [usize; 2]) {
    let config = CONFIG.split_whitespace().collect::<String>();
    let config = config.replace('"', "\\\"");
    let (mut header, mut numbers) = (
        format!(r#"{{"__metadata__":{{"config":"{config}"}}"#),
        Vec::new(),
    );
    let mut tables = 0;
    for (name, shape) in shapes() {
        if name == "pieces.weight" {
            tables = numbers.len();
        }
        let count: usize = shape.iter().product();
        let start = numbers.len();
        let kind = if is_eight_bits(&name) {
            numbers.extend((0..count).map(|place| (place % 251) as u8));
            "I8"
        } else {
            let values = (0..count).map(|place| (place % 7) as f32 / 8.0 - 0.25);
            numbers.extend(values.flat_map(f32::to_le_bytes));
            "F32"
        };
        let end = numbers.len();
        let _ = write!(
            header,
            r#","{name}":{{"dtype":"{kind}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#
        );
    }
    header.push('}');
    let start = header.len() + 8;
    let size = u64::try_from(header.len()).unwrap_or_default();
    let file = [&size.to_le_bytes(), header.as_bytes(), &numbers].concat();
    (file, [start, start + tables])
}

fn is_eight_bits(name: &str) -> bool {
    let eight = [
        "dense", "self", "gate", "pooler", "words", "pieces", "bigrams",
    ];
    name.ends_with(".weight") && eight.iter().any(|part| name.contains(part))
}

fn shapes() -> Vec<(String, Vec<usize>)> {
    let mut found: Vec<(String, Vec<usize>)> = Vec::new();
    let mut add = |name: &str, shape: &[usize]| found.push((name.to_owned(), shape.to_vec()));
    add("channel.weight", &[2, 2]);
    add("pool.query", &[1, 2]);
    add("second.positions", &[10, 4]);
    for (name, out, into) in [("head.0", 2, 4), ("head.1", 2, 2), ("second.labels", 2, 4)] {
        add(&format!("{name}.weight"), &[out, into]);
        add(&format!("{name}.bias"), &[out]);
    }
    for block in 0..2 {
        add(&format!("blocks.{block}.conv.weight"), &[3, 2]);
        add(&format!("blocks.{block}.conv.bias"), &[2]);
        add(&format!("blocks.{block}.gate.weight"), &[4, 2]);
        add(&format!("blocks.{block}.gate.scale"), &[4]);
        add(&format!("blocks.{block}.gate.bias"), &[4]);
        add(&format!("blocks.{block}.norm.weight"), &[2]);
        add(&format!("blocks.{block}.norm.bias"), &[2]);
    }
    for (name, out, into) in [
        ("second.pooler", 4, 4),
        ("second.layer.0.attention.self.query", 4, 4),
        ("second.layer.0.attention.self.key", 4, 4),
        ("second.layer.0.attention.self.value", 4, 4),
        ("second.layer.0.attention.output.dense", 4, 4),
        ("second.layer.0.intermediate.dense", 6, 4),
        ("second.layer.0.output.dense", 4, 6),
    ] {
        add(&format!("{name}.weight"), &[out, into]);
        add(&format!("{name}.scale"), &[out]);
        add(&format!("{name}.bias"), &[out]);
    }
    for name in [
        "second.norm",
        "second.layer.0.attention.output.LayerNorm",
        "second.layer.0.output.LayerNorm",
    ] {
        add(&format!("{name}.weight"), &[4]);
        add(&format!("{name}.bias"), &[4]);
    }
    for (name, rows, width) in [
        ("pieces", PIECES, 2),
        ("bigrams", 4, 2),
        ("second.words", PIECES + 3, 4),
    ] {
        add(&format!("{name}.weight"), &[rows, width]);
        add(&format!("{name}.scale"), &[rows]);
    }
    found
}
