//! The repository as the checks see it. All file and process access of this crate is here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Directories left out when git cannot say what is ignored; keep in step with `.gitignore`.
const UNLISTED_DIRECTORIES: &[&str] = &[".git", ".venv", "__pycache__", "target"];

/// The repository's crates and files; paths are relative to its root and use `/`.
pub(crate) struct Workspace {
    root: PathBuf,
    pub(crate) packages: Vec<Package>,
    /// Every file that is or could be committed, binary ones included.
    pub(crate) paths: Vec<String>,
    /// The text of those that hold UTF-8.
    pub(crate) texts: BTreeMap<String, String>,
}

/// A workspace member with all its declared dependencies: normal, build and dev alike.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: String,
    pub(crate) dependencies: BTreeSet<String>,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        let metadata = "metadata --format-version 1 --no-deps";
        let metadata: Value = serde_json::from_str(&output_of("cargo", metadata, Path::new("."))?)?;
        let (root, packages) =
            parse_metadata(&metadata).context("cargo metadata printed another shape")?;

        let mut paths = list_paths(&root)?;
        // A file deleted but not yet staged is still listed by git.
        paths.retain(|path| root.join(path).is_file());
        let mut texts = BTreeMap::new();
        for path in &paths {
            let bytes = fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
            if let Ok(text) = String::from_utf8(bytes) {
                texts.insert(path.clone(), text);
            }
        }
        Ok(Self {
            root,
            packages,
            paths,
            texts,
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> Result<()> {
        let target = self.root.join(path);
        if let Some(directory) = target.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&target, text).with_context(|| format!("cannot write {path}"))
    }
}

fn parse_metadata(metadata: &Value) -> Option<(PathBuf, Vec<Package>)> {
    let root = PathBuf::from(metadata["workspace_root"].as_str()?);
    let mut packages = Vec::new();
    for package in metadata["packages"].as_array()? {
        let manifest_path = Path::new(package["manifest_path"].as_str()?);
        let dependencies = package["dependencies"].as_array()?.iter();
        packages.push(Package {
            name: package["name"].as_str()?.to_owned(),
            manifest_path: manifest_path.strip_prefix(&root).ok()?.to_str()?.to_owned(),
            dependencies: dependencies
                .map(|dependency| dependency["name"].as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
        });
    }
    Some((root, packages))
}

/// Asks git, because only git knows what is ignored. A source archive, or a machine without git,
/// gets a plain walk instead: a check that sees slightly too much is better than none.
fn list_paths(root: &Path) -> Result<Vec<String>> {
    let list = "ls-files -z --cached --others --exclude-standard --deduplicate";
    if let Ok(listed) = output_of("git", list, root) {
        return Ok(listed.split_terminator('\0').map(str::to_owned).collect());
    }
    eprintln!("xtask: git cannot list the files, so every directory is walked");
    let mut paths = Vec::new();
    walk(root, "", &mut paths)?;
    Ok(paths)
}

fn walk(root: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(prefix))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.file_type()?.is_dir() {
            paths.push(format!("{prefix}{name}"));
        } else if !UNLISTED_DIRECTORIES.contains(&name.as_str()) {
            walk(root, &format!("{prefix}{name}/"), paths)?;
        }
    }
    Ok(())
}

fn output_of(program: &str, arguments: &str, directory: &Path) -> Result<String> {
    let mut command = Command::new(program);
    let output = command
        .args(arguments.split(' '))
        .current_dir(directory)
        .output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {arguments}: {stderr}");
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_read_with_every_kind_of_dependency() {
        let metadata = serde_json::json!({
            "workspace_root": "/checkout",
            "packages": [{
                "name": "a",
                "manifest_path": "/checkout/crates/a/Cargo.toml",
                "dependencies": [
                    { "name": "tokio", "kind": null },
                    { "name": "b", "kind": "dev", "rename": "store" },
                    { "name": "cc", "kind": "build" },
                    { "name": "tokio", "kind": "dev" },
                ],
            }],
        });
        let (root, packages) = parse_metadata(&metadata).unwrap();
        assert_eq!(root, Path::new("/checkout"));
        assert_eq!(packages[0].name, "a");
        assert_eq!(packages[0].manifest_path, "crates/a/Cargo.toml");
        assert!(packages[0].dependencies.iter().eq(["b", "cc", "tokio"]));
    }

    #[test]
    fn without_git_the_walk_finds_this_file() {
        let mut paths = Vec::new();
        walk(Path::new(env!("CARGO_MANIFEST_DIR")), "", &mut paths).unwrap();
        assert!(
            paths.iter().any(|path| path == "src/workspace.rs"),
            "{paths:?}"
        );
    }
}
