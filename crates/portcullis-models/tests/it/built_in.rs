use portcullis_core::memory::Embedder;
use portcullis_models::BuiltIn;

use crate::fixture::{Fixture, cosine};

#[test]
fn texts_have_the_pieces_of_hugging_faces_tokenizer() {
    let model = BuiltIn::new();
    for case in Fixture::read("potion.json").cases {
        let ids = model.tokenizer().ids(&case.text, usize::MAX);
        assert_eq!(ids, case.ids, "{:?}", case.text);
    }
}

#[test]
fn every_character_has_the_pieces_of_hugging_faces_tokenizer() {
    let model = BuiltIn::new();
    let blocks = Fixture::read("potion.json").blocks;
    assert_eq!(blocks.len(), 0x110);
    for (start, expected) in (0_u32..).step_by(0x1000).zip(blocks) {
        let mut state = 0xcbf2_9ce4_8422_2325_u64;
        for c in (start..start + 0x1000).filter_map(char::from_u32) {
            let ids = model.tokenizer().ids(&format!("a{c}b"), usize::MAX);
            for byte in ids.into_iter().chain([u32::MAX]).flat_map(u32::to_le_bytes) {
                state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        assert_eq!(format!("{state:016x}"), expected, "U+{start:04X} and on");
    }
}

#[test]
fn eight_bits_a_number_point_where_the_floats_do() {
    let model = BuiltIn::new();
    let mut worst = 1.0_f64;
    for case in Fixture::read("potion.json").cases {
        let vector = &model.embed(&[&case.text]).unwrap()[0];
        if case.vector.iter().all(|&number| number == 0.0) {
            assert_eq!(*vector, case.vector, "{:?}", case.text);
            continue;
        }
        let cosine = cosine(vector, &case.vector);
        assert!(cosine >= 0.999, "{cosine}: {:?}", case.text);
        worst = worst.min(cosine);
    }
    println!("the worst cosine is {worst}");
}

#[test]
fn alike_is_nearer_than_unlike() {
    let texts = [
        "refund a damaged order",
        "reimburse a broken parcel",
        "rotate the database password",
    ];
    let vectors = BuiltIn::new().embed(&texts).unwrap();
    assert!(cosine(&vectors[0], &vectors[1]) > cosine(&vectors[0], &vectors[2]) + 0.1);
}
