//! The least that a JSON server can do: parse a body, write it out again. `scripts/bench-server` measures the real
//! one beside it.
//!
//! `cargo run --release -p portcullis-server --example echo -- 127.0.0.1:8199`

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::Value;

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:8199");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        axum::serve(listener, Router::new().route("/cstp", post(echo))).await
    })
}

async fn echo(body: Bytes) -> Response {
    let written =
        serde_json::from_slice::<Value>(&body).and_then(|value| serde_json::to_vec(&value));
    match written {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}
