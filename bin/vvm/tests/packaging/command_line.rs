//! Manual pages and completions.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::{output, vvm};

/// Writes the pages into a folder.
fn written() -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    output(vvm(&["man"]).arg(folder.path().join("man1")));
    let files = fs::read_dir(folder.path().join("man1")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    (folder, files)
}

/// The help lists a command for each page, and no other command.
pub(crate) fn pages() {
    let (_folder, files) = written();
    let mut pages: Vec<_> =
        files.iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    let mut expected = Vec::new();
    expect(&mut expected, &[]);
    pages.sort();
    expected.sort();
    assert_eq!(pages, expected);
}

/// Adds the pages of a command and of the commands below it, as its help lists them.
fn expect(pages: &mut Vec<String>, words: &[&str]) {
    pages.push(format!("{}.1", ["vvm"].iter().chain(words).copied().collect::<Vec<_>>().join("-")));
    let help = output(vvm(words).arg("--help"));
    let below = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in below.take_while(|line| !line.is_empty()) {
        let is_command = line.starts_with("  ") && !line.starts_with("   ");
        let name = line.split_whitespace().next().unwrap();
        if is_command && name != "help" {
            expect(pages, &[words, &[name]].concat());
        }
    }
}

pub(crate) fn valid_pages() {
    let (_folder, files) = written();
    output(Command::new("mandoc").args(["-Tlint", "-Werror"]).args(files));
}

/// A reader sees the options and the exit codes of `vvm serve`.
pub(crate) fn rendered_pages() {
    let (folder, files) = written();
    let serve = folder.path().join("man1/vvm-serve.1");
    assert!(files.contains(&serve), "{files:?}");
    let page = output(Command::new("mandoc").args(["-Tutf8", "-Owidth=100"]).arg(serve));
    let page = without_overstrikes(&page).split_whitespace().collect::<Vec<_>>().join(" ");
    for text in ["--config <FILE>", "The address of the API", "7 the node lost its leadership"] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

/// A bold letter is printed twice, with a step back in between. An underlined one has a line below.
fn without_overstrikes(text: &str) -> String {
    let mut plain = String::new();
    for letter in text.chars() {
        match letter {
            '\u{8}' => drop(plain.pop()),
            letter => plain.push(letter),
        }
    }
    plain
}

/// Runs a script of a shell, with the file of its completions as the first argument.
fn complete(shell: &str, arguments: &[&str], script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("vvm");
    fs::write(&file, output(&mut vvm(&["completions", shell]))).unwrap();
    let mut command = Command::new(shell);
    output(command.args(arguments).args(["-c", script]).arg(Path::new("sh")).arg(&file))
}

pub(crate) fn bash() {
    let script = "source \"$1\"
        asked() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
            _vvm vvm \"${@: -1}\" \"${@: -2:1}\"; echo \"${COMPREPLY[@]}\"; }
        complete -p vvm
        asked vvm sta
        asked vvm cluster p
        asked vvm serve --l";
    let answers = complete("bash", &["--norc"], script);
    let answers: Vec<_> = answers.lines().collect();
    assert!(answers[0].contains("_vvm"), "{answers:?}");
    assert_eq!(answers[1..], ["status", "pause", "--listen"]);
}

pub(crate) fn zsh() {
    // The completion of zsh needs a terminal. The file is read, and its functions are there.
    let script = "autoload -U compinit; compinit -D; source \"$1\"
        whence -w _vvm _vvm__subcmd__status_commands; print -r -- ${(k)_comps[(R)_vvm]}";
    let answers = complete("zsh", &["-f"], script);
    assert!(answers.contains("_vvm: function"), "{answers}");
    assert!(answers.lines().any(|line| line == "vvm"), "{answers}");
}

pub(crate) fn fish() {
    let script = "source $argv[-1]; complete -C 'vvm sta'; complete -C 'vvm cluster p'";
    let answers = complete("fish", &["--no-config"], script);
    let words: Vec<_> = answers.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(words, ["status", "pause"]);
}
