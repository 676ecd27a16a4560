//! Against a server on a socket: what is sent, and what is made of good and bad answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use portcullis_core::memory::Embedder;
use portcullis_models::{HttpEmbedder, HttpSettings};
use serde_json::{Value, json};

const KEY: &str = "sk-secret-of-the-test";

/// Answers one connection after the other, each with the next of some answers, and gives the requests.
struct Server {
    url: String,
    requests: mpsc::Receiver<(String, Value)>,
}

impl Server {
    fn new(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::channel();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let request = read_request(&stream);
                if sender.send(request).is_err() {
                    return;
                }
                if answer.is_empty() {
                    // Says nothing, but keeps the connection.
                    thread::sleep(Duration::from_secs(30));
                }
                let _ = stream.write_all(&answer);
            }
        });
        Self { url, requests }
    }

    fn settings(&self) -> HttpSettings {
        HttpSettings {
            api_key: Some(KEY.to_owned()),
            dimension: Some(2),
            ..HttpSettings::new(&self.url, "test-model")
        }
    }
}

fn read_request(stream: &TcpStream) -> (String, Value) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

fn good(vectors: &[(usize, [f32; 2])]) -> Vec<u8> {
    let data: Vec<_> = vectors
        .iter()
        .map(|(index, embedding)| json!({"object": "embedding", "index": index, "embedding": embedding}))
        .collect();
    answer(
        "200 OK",
        "",
        &json!({"object": "list", "data": data}).to_string(),
    )
}

/// The error of a call that gets these answers, which must not hold the key.
#[track_caller]
fn error_of(answers: Vec<Vec<u8>>) -> String {
    error_within(Duration::from_secs(30), answers)
}

#[track_caller]
fn error_within(timeout: Duration, answers: Vec<Vec<u8>>) -> String {
    let server = Server::new(answers);
    let mut settings = server.settings();
    settings.timeout = timeout;
    let model = HttpEmbedder::connect(settings).unwrap();
    let error = model.embed(&["a", "b"]).unwrap_err();
    assert!(error.model.starts_with("test-model@127.0.0.1:"), "{error}");
    assert!(!format!("{error}{error:?}").contains(KEY), "{error}");
    error.why
}

#[test]
fn texts_are_sent_in_batches_and_vectors_come_back_in_order() {
    let server = Server::new(vec![
        good(&[(1, [0.0, 2.0]), (0, [3.0, 4.0])]),
        good(&[(0, [0.0, 0.0])]),
    ]);
    let mut settings = server.settings();
    settings.batch = 2;
    let model = HttpEmbedder::connect(settings).unwrap();
    assert!(!model.is_instant());
    let vectors = model.embed(&["a", "b", "c"]).unwrap();
    assert_eq!(vectors, [[0.6, 0.8], [0.0, 1.0], [0.0, 0.0]]);

    let (head, body) = server.requests.recv().unwrap();
    assert!(
        head.starts_with("POST /v1/embeddings HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains(&format!("authorization: Bearer {KEY}\r\n")),
        "{head}"
    );
    let expected = json!({"model": "test-model", "input": ["a", "b"], "encoding_format": "float"});
    assert_eq!(body, expected);
    assert_eq!(server.requests.recv().unwrap().1["input"], json!(["c"]));
}

#[test]
fn the_dimension_is_learnt_by_one_call() {
    let server = Server::new(vec![good(&[(0, [1.0, 1.0])])]);
    let mut settings = server.settings();
    settings.dimension = None;
    let model = HttpEmbedder::connect(settings).unwrap();
    assert_eq!(model.dimension(), 2);
    let host = server
        .url
        .trim_start_matches("http://")
        .trim_end_matches("/v1");
    assert_eq!(model.name(), format!("test-model@{host}/2"));
}

#[test]
fn the_key_is_in_no_debugging_output() {
    let server = Server::new(vec![]);
    let settings = server.settings();
    assert!(!format!("{settings:?}").contains(KEY));
    let model = HttpEmbedder::connect(settings).unwrap();
    assert!(!format!("{model:?}").contains(KEY));
}

#[test]
fn answers_that_do_not_fit_are_errors() {
    let body = |body: &str| answer("200 OK", "", body);
    for (answer, expected) in [
        (
            good(&[(0, [1.0, 0.0])]),
            "the answer has 1 vectors for 2 texts",
        ),
        (
            good(&[(0, [1.0, 0.0]), (0, [1.0, 0.0])]),
            "the answer has index 0 twice, or without a text",
        ),
        (
            good(&[(0, [1.0, 0.0]), (2, [1.0, 0.0])]),
            "the answer has index 2 twice, or without a text",
        ),
        (
            body(
                r#"{"data": [{"index": 0, "embedding": [1, 2, 3]}, {"index": 1, "embedding": [1, 2]}]}"#,
            ),
            "a vector has 3 numbers instead of 2",
        ),
    ] {
        assert_eq!(error_of(vec![answer]), expected);
    }
    // Whether a number is too large for a float already for JSON's reader depends on how that is built.
    let huge =
        r#"{"data": [{"index": 0, "embedding": [1e300, 2]}, {"index": 1, "embedding": [1, 2]}]}"#;
    let error = error_of(vec![body(huge)]);
    assert!(
        error.contains("not finite") || error.contains("out of range"),
        "{error}"
    );
    for text in [
        r#"{"data": [{"index": 0, "embedding": [NaN, 2]}]}"#,
        r#"{"data": [{"index": 0, "embedding": ["1", "2"]}]}"#,
        r#"{"data": [{"index": 0, "embedding": [null, 2]}]}"#,
        r#"{"error": "odd"}"#,
        "<html>",
    ] {
        let error = error_of(vec![body(text)]);
        assert!(
            error.starts_with("the answer is not one of embeddings: "),
            "{error}"
        );
    }
}

#[test]
fn a_refusal_is_passed_on_without_the_key() {
    let body =
        json!({"error": {"message": format!("Incorrect API key\nprovided: {KEY}.")}}).to_string();
    let error = error_of(vec![answer("401 Unauthorized", "", &body)]);
    assert!(
        error.ends_with(" answers 401 Unauthorized: Incorrect API key provided: [key]."),
        "{error}"
    );
    let error = error_of(vec![answer("400 Bad Request", "", &"x".repeat(10_000))]);
    assert!(error.len() < 400, "{error}");
}

#[test]
fn a_busy_server_is_asked_again_once() {
    let busy = || answer("429 Too Many Requests", "retry-after: 0\r\n", "slow down");
    let server = Server::new(vec![busy(), good(&[(0, [1.0, 0.0])])]);
    let model = HttpEmbedder::connect(server.settings()).unwrap();
    assert_eq!(model.embed(&["a"]).unwrap(), [[1.0, 0.0]]);

    let broken = || answer("500 Internal Server Error", "retry-after: 0\r\n", "");
    let error = error_of(vec![broken(), broken()]);
    assert!(
        error.ends_with(" answers 500 Internal Server Error: no reason given, twice"),
        "{error}"
    );

    let patient = answer("503 Service Unavailable", "retry-after: 3600\r\n", "later");
    let error = error_of(vec![patient]);
    assert!(
        error.ends_with(": later; it asks to wait for 3600 s"),
        "{error}"
    );
}

#[test]
fn a_server_that_hangs_is_left() {
    let error = error_within(Duration::from_millis(300), vec![vec![]]);
    assert!(error.contains("timed out"), "{error}");
}

#[test]
fn a_server_that_drips_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_request(&stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n")
            .unwrap();
        // Each byte comes within the timeout.
        while stream.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let settings = HttpSettings {
        dimension: Some(2),
        timeout: Duration::from_millis(300),
        ..HttpSettings::new(url, "test-model")
    };
    let error = HttpEmbedder::connect(settings)
        .unwrap()
        .embed(&["a"])
        .unwrap_err();
    assert!(
        error.why.starts_with("no answer from 127.0.0.1:"),
        "{error}"
    );
}

#[test]
fn a_redirect_is_not_followed() {
    let elsewhere = Server::new(vec![good(&[(0, [1.0, 0.0]), (1, [1.0, 0.0])])]);
    let location = format!("location: {}/embeddings\r\n", elsewhere.url);
    let error = error_of(vec![answer("307 Temporary Redirect", &location, "")]);
    assert!(error.contains(" answers 307 Temporary Redirect"), "{error}");
    assert!(elsewhere.requests.try_recv().is_err());
}

#[test]
fn a_huge_answer_is_not_read_to_its_end() {
    let huge = format!("{{\"data\": [{}]}}", " ".repeat(10_000_000));
    let error = error_of(vec![answer("200 OK", "", &huge)]);
    assert!(error.starts_with("the answer has more than "), "{error}");
}

#[test]
fn nobody_there_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = HttpEmbedder::connect(HttpSettings::new(url, "test-model")).unwrap_err();
    assert!(
        error.why.starts_with("no answer from 127.0.0.1:"),
        "{error}"
    );
}

#[test]
fn it_can_be_made_used_and_dropped_inside_a_runtime() {
    let server = Server::new(vec![good(&[(0, [1.0, 0.0])])]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let model = HttpEmbedder::connect(server.settings()).unwrap();
        assert_eq!(model.embed(&["a"]).unwrap(), [[1.0, 0.0]]);
        drop(model);
    });
}
