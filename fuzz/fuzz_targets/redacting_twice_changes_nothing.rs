//! Once its redactions are applied, an answer holds no secret that the policy knows.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use portcullis_core::{Action, Context, Event, pack, redact_event};
use portcullis_runtime::Gateway;
use tokio::runtime::{Builder, Runtime};

static GATE: LazyLock<(Gateway, Runtime)> = LazyLock::new(|| {
    let gateway = Gateway::builder(pack::load_default().unwrap().policy).build();
    (gateway, Builder::new_current_thread().enable_time().build().unwrap())
});

fuzz_target!(|parts: (Vec<u8>, Vec<u8>, u8)| {
    let (before, after, secret) = parts;
    let secret = [
        "sk-abcdefghijklmnopqrst",
        "sk-ant-api03-abcdefghijklmnop",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    ][usize::from(secret % 4)];
    let (before, after) = (String::from_utf8_lossy(&before), String::from_utf8_lossy(&after));
    let mut event = Event::tool_call_result("r", "t", format!("{before}{secret}{after}"));
    let (gateway, runtime) = &*GATE;
    let judge = |event: &Event| {
        runtime.block_on(gateway.evaluate(&mut Context::new("r"), event)).decision
    };
    let first = judge(&event);
    assert_eq!(first.action, Action::Redact);
    redact_event(&mut event, &first.redactions).unwrap();
    assert!(!event.text().contains(secret));
    assert_eq!(judge(&event).action, Action::Allow);
});
