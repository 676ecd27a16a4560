//! What finds decisions by their meaning: `memory.embedder`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::memory::Embedder;
use portcullis_core::pack::diagnostic::Diagnostics;
use portcullis_core::pack::yaml::{self, MapReader, Node, Yaml};
use portcullis_models::{Bert, BuiltIn, HttpEmbedder, HttpSettings};

use super::read::{has_path, seconds};

/// Which model makes vectors of texts.
#[derive(Debug, Clone, Default)]
pub enum EmbedderSettings {
    /// The one inside the binary.
    #[default]
    BuiltIn,
    /// A BERT sentence transformer, such as all-MiniLM-L6-v2, in a folder.
    Folder(PathBuf),
    /// A service that speaks the embeddings API of `OpenAI`.
    Http(Box<HttpSettings>),
}

impl fmt::Display for EmbedderSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::Http(settings) => write!(f, "{} of {}", settings.model, settings.base_url),
        }
    }
}

impl EmbedderSettings {
    /// Loads the model, or asks the service for a first vector. Takes a thread that may wait.
    pub fn load(&self) -> Result<Arc<dyn Embedder>, String> {
        Ok(match self {
            Self::BuiltIn => Arc::new(BuiltIn::new()),
            Self::Folder(path) => Arc::new(Bert::load(path).map_err(|error| error.to_string())?),
            Self::Http(settings) => {
                let connected = HttpEmbedder::connect((**settings).clone());
                Arc::new(connected.map_err(|error| error.to_string())?)
            }
        })
    }
}

pub(super) fn read(node: &Node, d: &mut Diagnostics) -> Option<EmbedderSettings> {
    const HELP: &str = "write `built-in`, `{folder: …}` or `{url: …, model: …}`";
    match &node.yaml {
        Yaml::Text(text) if text == "built-in" => return Some(EmbedderSettings::BuiltIn),
        Yaml::Map(_) => {}
        _ => {
            d.error(node.place, "`embedder` names no model").help(HELP);
            return None;
        }
    }
    let mut map = MapReader::open(node, "`memory.embedder`", d)?;
    let read = match (map.text("folder", d), map.get("url")) {
        (Some(folder), None) => Some(EmbedderSettings::Folder(PathBuf::from(folder))),
        (None, Some(url)) => {
            let place = url.place;
            let url = yaml::text(url, "url", d)?.trim_end_matches('/').to_owned();
            // It says nothing of the value: some addresses have a key in them.
            if !has_path(&url) && !d.has_error_at(place) {
                d.error(place, "`url` is not an address of HTTP")
                    .help("write where the API begins, such as https://api.example.com/v1; what it knows us by is `api_key`");
            }
            let model = map.require("model", d);
            let model = model.and_then(|node| yaml::text(node, "model", d));
            let mut settings = HttpSettings::new(url, model.unwrap_or_default());
            settings.api_key = api_key(&mut map, d);
            settings.dimension = map.count("dimension", d);
            let mut timeout = Duration::from_secs(10);
            seconds(&mut map, "timeout_seconds", &mut timeout, d);
            settings.timeout = timeout;
            Some(EmbedderSettings::Http(Box::new(settings)))
        }
        _ => {
            d.error(node.place, "`embedder` takes either a `folder` or a `url`")
                .help(HELP);
            return None;
        }
    };
    map.finish(d);
    read
}

fn api_key(map: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<String> {
    let node = map.get("api_key")?;
    let key = yaml::text(node, "api_key", d)?;
    if key.trim().is_empty() {
        d.error(node.place, "`api_key` is empty")
            .help("write one, or leave the key out");
    }
    Some(key.to_owned())
}
