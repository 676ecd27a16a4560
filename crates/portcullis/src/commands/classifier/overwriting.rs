//! Commands that write no file which they read, and none twice.

use std::path::Path;

use anyhow::anyhow;

use super::input;
use crate::output::Failure;
use crate::whole::place;

/// A file or a folder, if there is one, and what it is to the command: an option, mostly.
pub(super) type Named<'a> = (&'static str, Option<&'a Path>);

/// What is read of a model's folder.
const OF_FOLDERS: [&str; 8] = [
    "1_Pooling/config.json",
    "config.json",
    "model.safetensors",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
];

/// Refuses to write over what is read, and over what is written before.
pub(super) fn refuse<'a>(
    read: impl IntoIterator<Item = Named<'a>>,
    written: impl IntoIterator<Item = Named<'a>>,
) -> Result<(), Failure> {
    let given = |(option, path): Named<'a>| Some((option, path?));
    let read = read.into_iter().filter_map(given);
    let mut taken: Vec<_> = read
        .map(|(option, path)| (option, path, place(path)))
        .collect();
    for (option, path) in written.into_iter().filter_map(given) {
        // A pipe or a device takes everything.
        if path.exists() && !path.is_file() {
            continue;
        }
        let here = place(path);
        let is_place = |of: &Path| {
            let of_folder = |file: &&str| place(&of.join(file)) == here;
            of == here || OF_FOLDERS.iter().any(of_folder)
        };
        if let Some((other, of, _)) = taken.iter().find(|(.., of)| is_place(of)) {
            return Err(input(anyhow!(
                "{option} {} would write over {other} {}: name another file",
                path.display(),
                of.display()
            )));
        }
        taken.push((option, path, here));
    }
    Ok(())
}
