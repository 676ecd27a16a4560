//! The values of a JSON text, and where they are in it.
//!
//! A frame is rewritten in place, string by string, so that its members keep their order, their
//! numbers their digits and its whitespace its place. `serde_json::Value` keeps none of these.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::{Error as _, IgnoredAny};

use crate::redact::push_pointer;

/// How deep values may be nested, as in `serde_json`.
const MAX_DEPTH: usize = 128;

/// The values in the order of the text, a container before what is in it.
#[derive(Debug)]
pub(super) struct Tree<'j> {
    pub(super) nodes: Vec<Node<'j>>,
}

#[derive(Debug)]
pub(super) struct Node<'j> {
    parent: usize,
    step: Step,
    pub(super) span: Range<usize>,
    pub(super) kind: Kind<'j>,
}

/// How to get to a value from its parent. Whole paths in every node would take memory that grows with
/// the square of the frame.
#[derive(Debug, Clone, Copy)]
enum Step {
    Root,
    /// The name is not a value, and no pointer leads to it.
    Name,
    /// Whose name is in this node.
    Member(usize),
    Item(usize),
}

#[derive(Debug, PartialEq)]
pub(super) enum Kind<'j> {
    Name(Cow<'j, str>),
    Text(Cow<'j, str>),
    /// A number, a boolean or null, as it is written.
    Scalar(&'j str),
    Container,
}

/// A container that has not ended.
struct Open {
    node: usize,
    is_object: bool,
    /// The node of the name whose value is next.
    name: Option<usize>,
    items: usize,
}

impl<'j> Tree<'j> {
    pub(super) fn parse(json: &'j str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<IgnoredAny>(json)?;
        let mut tree = Self { nodes: Vec::new() };
        let mut open: Vec<Open> = Vec::new();
        let mut at = 0;
        while let Some(byte) = json.as_bytes().get(at) {
            let end = match byte {
                b'"' => string_end(json, at),
                b'{' | b'[' | b'}' | b']' | b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => at + 1,
                _ => scalar_end(json, at),
            };
            let span = at..end;
            match byte {
                b'"' => {
                    let text = decode(&json[span.clone()])?;
                    match open.last_mut() {
                        Some(object) if object.is_object && object.name.is_none() => {
                            object.name = Some(tree.nodes.len());
                            tree.add(object.node, Step::Name, span, Kind::Name(text));
                        }
                        within => tree.value(within, span, Kind::Text(text)),
                    }
                }
                b'{' | b'[' if open.len() == MAX_DEPTH => {
                    let message = format!("nested deeper than {MAX_DEPTH}");
                    return Err(serde_json::Error::custom(message));
                }
                b'{' | b'[' => {
                    let node = tree.nodes.len();
                    tree.value(open.last_mut(), span, Kind::Container);
                    open.push(Open {
                        node,
                        is_object: *byte == b'{',
                        name: None,
                        items: 0,
                    });
                }
                b'}' | b']' => {
                    if let Some(ended) = open.pop() {
                        tree.nodes[ended.node].span.end = end;
                    }
                }
                b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => {}
                _ => tree.value(open.last_mut(), span.clone(), Kind::Scalar(&json[span])),
            }
            at = end;
        }
        Ok(tree)
    }

    fn value(&mut self, within: Option<&mut Open>, span: Range<usize>, kind: Kind<'j>) {
        let Some(within) = within else {
            return self.add(0, Step::Root, span, kind);
        };
        let step = within.name.take().map_or_else(
            || {
                within.items += 1;
                Step::Item(within.items - 1)
            },
            Step::Member,
        );
        self.add(within.node, step, span, kind);
    }

    fn add(&mut self, parent: usize, step: Step, span: Range<usize>, kind: Kind<'j>) {
        self.nodes.push(Node {
            parent,
            step,
            span,
            kind,
        });
    }

    /// The name of the member that this value is.
    pub(super) fn member(&self, node: usize) -> Option<&str> {
        match self.nodes[node].step {
            Step::Member(name) => match &self.nodes[name].kind {
                Kind::Name(name) => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether this value holds anything: not null, false, nor an empty text or container.
    pub(super) fn is_set(&self, node: usize) -> bool {
        match &self.nodes[node].kind {
            Kind::Name(text) | Kind::Text(text) => !text.is_empty(),
            Kind::Scalar(text) => !matches!(*text, "null" | "false"),
            Kind::Container => self
                .nodes
                .get(node + 1)
                .is_some_and(|next| next.span.start < self.nodes[node].span.end),
        }
    }

    /// Its JSON Pointer, as redactions name it. What is in a member with an overlong name goes by the
    /// pointer of what that member is in.
    pub(super) fn pointer(&self, node: usize) -> String {
        const LONGEST: usize = 256;
        let mut path = vec![node];
        let mut at = node;
        while !matches!(self.nodes[at].step, Step::Root) {
            at = self.nodes[at].parent;
            path.push(at);
        }
        let mut pointer = String::new();
        for at in path.into_iter().rev() {
            let before = pointer.len();
            match (self.nodes[at].step, &self.nodes[at].kind) {
                (Step::Root, _) => {}
                (Step::Item(place), _) => push_pointer(&mut pointer, &place.to_string()),
                (_, Kind::Name(name)) => push_pointer(&mut pointer, name),
                (..) => push_pointer(&mut pointer, self.member(at).unwrap_or_default()),
            }
            if pointer.len() > LONGEST {
                pointer.truncate(before);
                break;
            }
        }
        match self.nodes[node].kind {
            Kind::Name(_) => format!("#{pointer}"),
            _ => pointer,
        }
    }
}

/// A JSON Pointer in which `*` stands for any item of an array.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pattern(Vec<String>);

impl Pattern {
    pub(super) fn new(pointer: &str) -> Self {
        let steps = pointer.strip_prefix('/').map(|rest| rest.split('/'));
        let unescape = |step: &str| step.replace("~1", "/").replace("~0", "~");
        Self(steps.into_iter().flatten().map(unescape).collect())
    }

    /// How many `*` it has.
    pub(super) fn stars(&self) -> usize {
        self.0.iter().filter(|step| *step == "*").count()
    }

    /// Where the items are that `*` stands for, if it leads to this value.
    pub(super) fn places(&self, tree: &Tree<'_>, node: usize) -> Option<Vec<usize>> {
        let mut places = Vec::new();
        let mut at = node;
        for step in self.0.iter().rev() {
            match tree.nodes[at].step {
                Step::Item(place) if step == "*" => places.push(place),
                Step::Item(place) if step.parse() == Ok(place) => {}
                Step::Member(_) if tree.member(at) == Some(step) => {}
                _ => return None,
            }
            at = tree.nodes[at].parent;
        }
        places.reverse();
        matches!(tree.nodes[at].step, Step::Root).then_some(places)
    }
}

/// The text as a JSON string, without the characters that some readers of lines take for line ends.
pub(super) fn encode(text: &str) -> String {
    let mut json = serde_json::Value::from(text).to_string();
    for (end, escape) in [
        ('\u{85}', "\\u0085"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ] {
        if json.contains(end) {
            json = json.replace(end, escape);
        }
    }
    json
}

fn decode(token: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    if token.contains('\\') {
        return serde_json::from_str(token).map(Cow::Owned);
    }
    Ok(Cow::Borrowed(
        &token[1..token.len().saturating_sub(1).max(1)],
    ))
}

fn string_end(json: &str, start: usize) -> usize {
    let bytes = json.as_bytes();
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

fn scalar_end(json: &str, start: usize) -> usize {
    let ends = |c: char| matches!(c, ',' | ']' | '}' | ' ' | '\t' | '\r' | '\n');
    json[start..]
        .find(ends)
        .map_or(json.len(), |length| start + length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn values_are_found_with_their_place_and_pointer() {
        let json = r#" {"a" : [1, "x\"y", {"b/c":null}], "":"é", "d":{}, "\u0065":true} "#;
        let tree = Tree::parse(json).unwrap();
        let found: Vec<(String, &str, bool)> = (0..tree.nodes.len())
            .map(|node| {
                let span = tree.nodes[node].span.clone();
                (tree.pointer(node), &json[span], tree.is_set(node))
            })
            .collect();
        let expected = [
            ("", json.trim(), true),
            ("#/a", "\"a\"", true),
            ("/a", r#"[1, "x\"y", {"b/c":null}]"#, true),
            ("/a/0", "1", true),
            ("/a/1", r#""x\"y""#, true),
            ("/a/2", r#"{"b/c":null}"#, true),
            ("#/a/2/b~1c", "\"b/c\"", true),
            ("/a/2/b~1c", "null", false),
            ("#/", "\"\"", false),
            ("/", "\"é\"", true),
            ("#/d", "\"d\"", true),
            ("/d", "{}", false),
            ("#/e", "\"\\u0065\"", true),
            ("/e", "true", true),
        ];
        let expected = expected.map(|(at, text, set)| (at.to_owned(), text, set));
        assert_eq!(found, expected);
    }

    #[test]
    fn patterns_say_which_items_they_went_through() {
        let tree = Tree::parse(r#"{"a":[{"b":[7]},{"b":[8,9]}],"*":1}"#).unwrap();
        let all = |pointer: &str| -> Vec<Vec<usize>> {
            let pattern = Pattern::new(pointer);
            (0..tree.nodes.len())
                .filter_map(|node| pattern.places(&tree, node))
                .collect()
        };
        for (pointer, expected) in [
            ("", vec![vec![]]),
            ("/a", vec![vec![]]),
            ("/a/*", vec![vec![0], vec![1]]),
            ("/a/*/b/*", vec![vec![0, 0], vec![1, 0], vec![1, 1]]),
            ("/a/1/b/*", vec![vec![0], vec![1]]),
            ("/b", vec![]),
            ("/*", vec![vec![]]),
        ] {
            assert_eq!(all(pointer), expected, "{pointer}");
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for json in ["", "{", "{\"a\":}", "\"\\ud800\"", "\"a", "1 2", "\"\n\""] {
            assert!(Tree::parse(json).is_err(), "{json}");
        }
    }

    #[test]
    fn no_line_end_is_written() {
        assert_eq!(
            encode("a\"\n\u{85}\u{2028}\u{2029}é"),
            "\"a\\\"\\n\\u0085\\u2028\\u2029é\""
        );
    }

    #[test]
    fn depth_has_an_end() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Tree::parse(&nested(MAX_DEPTH)).is_ok());
        let error = Tree::parse(&nested(200_000)).unwrap_err();
        assert_eq!(error.to_string(), "nested deeper than 128");
    }

    #[test]
    fn an_overlong_name_is_left_out_of_pointers() {
        let json = format!(r#"{{"a":{{"{}":{{"b":"x"}}}}}}"#, "n".repeat(300));
        let tree = Tree::parse(&json).unwrap();
        assert_eq!(tree.pointer(tree.nodes.len() - 1), "/a");
    }

    proptest! {
        /// Whatever the text is, writing and reading it gives it back.
        #[test]
        fn what_is_encoded_decodes(text in any::<String>()) {
            let json = encode(&text);
            let tree = Tree::parse(&json).unwrap();
            prop_assert_eq!(&tree.nodes[0].kind, &Kind::Text(Cow::Borrowed(&*text)));
        }

        /// The tree finds what `serde_json` finds where it finds it, in whatever serde takes.
        #[test]
        fn pointers_lead_to_the_same_values(json in "[\\[\\]{},: \"ab\\\\01]{0,20}") {
            let Ok(value) = serde_json::from_str::<Value>(&json) else { return Ok(()) };
            let tree = Tree::parse(&json).unwrap();
            for (at, node) in tree.nodes.iter().enumerate() {
                let found = serde_json::from_str::<Value>(&json[node.span.clone()]).ok();
                prop_assert!(found.is_some(), "{:?} in {}", node, json);
                // Of members with the same name serde keeps the last.
                if !matches!(node.kind, Kind::Name(_)) && json.matches(':').count() < 2 {
                    prop_assert_eq!(value.pointer(&tree.pointer(at)), found.as_ref());
                }
            }
        }
    }
}
