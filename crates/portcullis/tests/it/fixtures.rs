//! Running the binary, and files for it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The binary.
pub(crate) fn portcullis() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    for variable in [
        "NO_COLOR",
        "PORTCULLIS_MEMORY",
        "PORTCULLIS_TOKEN",
        "PORTCULLIS_URL",
    ] {
        command.env_remove(variable);
    }
    command.current_dir(root());
    command
}

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs it to its end, with this on standard input.
pub(crate) fn run(args: &[&str], input: impl AsRef<[u8]>) -> Done {
    run_in(&root(), args, input)
}

/// Runs it in this folder.
pub(crate) fn run_in(folder: &Path, args: &[&str], input: impl AsRef<[u8]>) -> Done {
    run_with(args, input, |command| {
        command.current_dir(folder);
    })
}

/// Runs it with whatever else the command needs.
pub(crate) fn run_with(
    args: &[&str],
    input: impl AsRef<[u8]>,
    prepare: impl FnOnce(&mut Command),
) -> Done {
    let mut command = portcullis();
    command.args(args);
    prepare(&mut command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_ref().to_owned();
    let writer = std::thread::spawn(move || {
        // A command that does not read its input is fine.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Done(output)
}

pub(crate) struct Done(Output);

impl Done {
    pub(crate) fn code(&self) -> i32 {
        self.0.status.code().unwrap_or(-1)
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }

    /// Each line of standard output, as JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// Files in a folder of their own.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        self.put(name, text)
    }

    /// Writes any bytes, in a folder that need not be there.
    pub(crate) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Text without the folder's name, for snapshots.
    pub(crate) fn anonymous(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}
