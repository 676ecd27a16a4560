//! Where the streamed text is in a frame, which of several texts it belongs to, and where it ends.

use std::collections::BTreeMap;

use super::json::{Kind, Pattern, Tree};

/// Where texts are in the JSON of a frame.
///
/// Places are JSON Pointers in which `*` stands for any item of an array. A text that is streamed in
/// several frames must be named here: all other strings are judged as whole texts, frame by frame.
///
/// ```
/// use portcullis_core::TextPath;
///
/// let path = TextPath::new()
///     .text("/outputs/*/text", &["/outputs/*/id"])
///     .end("/outputs/*/stop", &["/outputs/*/id"]);
/// # let _ = path;
/// ```
#[derive(Debug, Clone, Default)]
pub struct TextPath {
    texts: Vec<Text>,
    ends: Vec<End>,
    /// Every index that a text or an end has, once.
    indexes: Vec<Index>,
    once: Vec<Pattern>,
    withheld: Vec<String>,
}

#[derive(Debug, Clone)]
struct Text {
    at: Pattern,
    indexes: Vec<usize>,
}

#[derive(Debug, Clone)]
struct End {
    at: Pattern,
    is: Is,
    indexes: Vec<usize>,
}

#[derive(Debug, Clone)]
enum Is {
    Set,
    Equal(String),
    EndingIn(String),
}

#[derive(Debug, Clone, PartialEq)]
struct Index {
    at: Pattern,
    /// Without its last part: `response.refusal.delta` and `response.refusal.done` are of one text.
    stem: bool,
}

/// One of the texts of a connection: which of the pointers, and what its indexes are.
pub(super) type Key = (usize, Vec<String>);

/// What is in a frame.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Nodes with a piece of a text.
    pub(super) texts: Vec<(usize, Key)>,
    /// Texts whose indexes begin so end here.
    pub(super) ends: Vec<Vec<String>>,
    /// Nodes whose string is not to be said twice.
    pub(super) once: Vec<usize>,
    /// Nodes that may not be passed on.
    pub(super) withheld: Vec<usize>,
}

impl TextPath {
    /// No text yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A text at this pointer. Frames with the same values at `indexes` carry pieces of one text; where
    /// there is no such value, the place in the array counts.
    pub fn text(mut self, pointer: &str, indexes: &[&str]) -> Self {
        let text = Text {
            at: Pattern::new(pointer),
            indexes: self.add_indexes(indexes),
        };
        self.texts.push(text);
        self
    }

    /// A frame with something at this pointer (not null, false or empty) ends texts: those whose
    /// first indexes have the values that these have.
    pub fn end(self, pointer: &str, indexes: &[&str]) -> Self {
        self.end_if(pointer, Is::Set, indexes)
    }

    /// A frame with this string at this pointer ends texts: those whose first indexes have the values
    /// that these have.
    pub fn end_at(self, pointer: &str, value: &str, indexes: &[&str]) -> Self {
        self.end_if(pointer, Is::Equal(value.to_owned()), indexes)
    }

    /// The string at this pointer is left empty in frames that are made up to carry the rest of a
    /// text: readers join what comes in several frames.
    pub fn once(mut self, pointer: &str) -> Self {
        self.once.push(Pattern::new(pointer));
        self
    }

    /// Members of this name are emptied wherever they are, to null or an array of nothing: they say the
    /// text again, in a form that cannot be judged.
    pub fn withhold(mut self, member: &str) -> Self {
        self.withheld.push(member.to_owned());
        self
    }

    /// Chat completions and completions, of `OpenAI` and of those who speak like it.
    ///
    /// Log probabilities are withheld: they spell the text token by token.
    pub fn openai_chat() -> Self {
        const CHOICE: &str = "/choices/*/index";
        const CALL: &str = "/choices/*/delta/tool_calls/*/index";
        let mut path = Self::new();
        for text in [
            "content",
            "content/*/text",
            "refusal",
            "reasoning_content",
            "reasoning",
            "reasoning_details/*/text",
            "reasoning_details/*/summary",
            "audio/transcript",
            "function_call/arguments",
        ] {
            path = path.text(&format!("/choices/*/delta/{text}"), &[CHOICE]);
        }
        path.text("/choices/*/text", &[CHOICE])
            .text(
                "/choices/*/delta/tool_calls/*/function/arguments",
                &[CHOICE, CALL],
            )
            .text(
                "/choices/*/delta/tool_calls/*/custom/input",
                &[CHOICE, CALL],
            )
            .end("/choices/*/finish_reason", &[CHOICE])
            .once("/choices/*/delta/tool_calls/*/id")
            .once("/choices/*/delta/tool_calls/*/function/name")
            .once("/choices/*/delta/tool_calls/*/custom/name")
            .once("/choices/*/delta/function_call/name")
            .withhold("logprobs")
    }

    /// `OpenAI`'s responses. Every `delta` is taken for text, that of audio too.
    ///
    /// Log probabilities are withheld: they spell the text token by token.
    pub fn openai_responses() -> Self {
        const PART: &[&str] = &["/output_index", "/content_index", "/summary_index"];
        let mut path = Self::new();
        let kind = Index {
            at: Pattern::new("/type"),
            stem: true,
        };
        let mut indexes = vec![path.add_index(kind)];
        indexes.extend(path.add_indexes(PART));
        path.texts.push(Text {
            at: Pattern::new("/delta"),
            indexes: indexes.clone(),
        });
        path.ends.push(End {
            at: Pattern::new("/type"),
            is: Is::EndingIn(".done".to_owned()),
            indexes,
        });
        for last in ["completed", "incomplete", "failed", "cancelled"] {
            path = path.end_at("/type", &format!("response.{last}"), &[]);
        }
        path.withhold("logprobs")
    }

    /// Anthropic's messages.
    pub fn anthropic() -> Self {
        const BLOCK: &[&str] = &["/index"];
        Self::new()
            .text("/delta/text", BLOCK)
            .text("/delta/thinking", BLOCK)
            .text("/delta/partial_json", BLOCK)
            .end_at("/type", "content_block_stop", BLOCK)
            .end_at("/type", "message_stop", &[])
    }

    /// Ollama's chat and generate.
    pub fn ollama() -> Self {
        Self::new()
            .text("/message/content", &[])
            .text("/message/thinking", &[])
            .text("/response", &[])
            .text("/thinking", &[])
            .end("/done", &[])
            .withhold("logprobs")
    }

    fn end_if(mut self, pointer: &str, is: Is, indexes: &[&str]) -> Self {
        let end = End {
            at: Pattern::new(pointer),
            is,
            indexes: self.add_indexes(indexes),
        };
        self.ends.push(end);
        self
    }

    fn add_indexes(&mut self, pointers: &[&str]) -> Vec<usize> {
        let indexes = pointers.iter().map(|pointer| Index {
            at: Pattern::new(pointer),
            stem: false,
        });
        indexes.map(|index| self.add_index(index)).collect()
    }

    fn add_index(&mut self, index: Index) -> usize {
        let known = self.indexes.iter().position(|known| *known == index);
        known.unwrap_or_else(|| {
            self.indexes.push(index);
            self.indexes.len() - 1
        })
    }

    pub(super) fn find(&self, tree: &Tree<'_>) -> Found {
        let values: Vec<BTreeMap<Vec<usize>, usize>> = self
            .indexes
            .iter()
            .map(|index| {
                let nodes = 0..tree.nodes.len();
                nodes
                    .filter_map(|node| Some((index.at.places(tree, node)?, node)))
                    .collect()
            })
            .collect();
        let key = |indexes: &[usize], places: &[usize]| -> Vec<String> {
            let values = indexes.iter().map(|id| {
                let index = &self.indexes[*id];
                index.value(tree, &values[*id], places)
            });
            values.collect()
        };
        let mut found = Found::default();
        let mut withheld_to = 0;
        for (node, value) in tree.nodes.iter().enumerate() {
            if value.span.start < withheld_to {
                continue;
            }
            let member = tree.member(node);
            if member.is_some_and(|name| self.withheld.iter().any(|known| known == name))
                && tree.is_set(node)
            {
                withheld_to = value.span.end;
                found.withheld.push(node);
                continue;
            }
            if matches!(value.kind, Kind::Text(_)) {
                for (id, text) in self.texts.iter().enumerate() {
                    if let Some(places) = text.at.places(tree, node) {
                        found.texts.push((node, (id, key(&text.indexes, &places))));
                        break;
                    }
                }
                if self.once.iter().any(|at| at.places(tree, node).is_some()) {
                    found.once.push(node);
                }
            }
            for end in &self.ends {
                if let Some(places) = end.at.places(tree, node)
                    && end.is.met(tree, node)
                {
                    found.ends.push(key(&end.indexes, &places));
                }
            }
        }
        found
    }
}

impl Is {
    fn met(&self, tree: &Tree<'_>, node: usize) -> bool {
        match (self, &tree.nodes[node].kind) {
            (Self::Set, _) => tree.is_set(node),
            (Self::Equal(value), Kind::Text(text)) => text == value,
            (Self::EndingIn(value), Kind::Text(text)) => text.ends_with(value),
            _ => false,
        }
    }
}

impl Index {
    /// Its value for a text found at these places.
    fn value(
        &self,
        tree: &Tree<'_>,
        values: &BTreeMap<Vec<usize>, usize>,
        places: &[usize],
    ) -> String {
        let mine = &places[..self.at.stars().min(places.len())];
        let node = values.get(mine).map(|node| &tree.nodes[*node].kind);
        match node {
            Some(Kind::Text(text)) if self.stem => match text.rsplit_once('.') {
                Some((stem, _)) => stem.to_owned(),
                None => text.to_string(),
            },
            Some(Kind::Text(text)) => text.to_string(),
            Some(Kind::Scalar(value)) if *value != "null" => (*value).to_owned(),
            _ => mine.last().map(usize::to_string).unwrap_or_default(),
        }
    }
}
