//! Any bytes are a step or an error; any step gets an answer whose redactions can be applied.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use portcullis_core::{Step, pack, redact_event};
use portcullis_runtime::Gateway;
use tokio::runtime::{Builder, Runtime};

static GATE: LazyLock<(Gateway, Runtime)> = LazyLock::new(|| {
    let gateway = Gateway::builder(pack::load_default().unwrap().policy).build();
    (gateway, Builder::new_current_thread().enable_time().build().unwrap())
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(Step { mut context, mut event }) = serde_json::from_slice::<Step>(bytes) else {
        return;
    };
    let (gateway, runtime) = &*GATE;
    let evaluation = runtime.block_on(gateway.evaluate(&mut context, &event));
    serde_json::to_string(&evaluation).unwrap();
    redact_event(&mut event, &evaluation.decision.redactions).unwrap();
});
