//! Tokens of a node as a process: made by `vvm token`, and sent by the commands.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use rustix::process::Signal;

use crate::node::{self, NodeProcess};

const ISSUER: &str = "https://issuer.example";

const CONFIG: &str = "[storage]\ndriver = \"mem\"\n\
    [access]\nkeys_file = \"keys.json\"\nissuer = \"https://issuer.example\"\n";

fn vvm(folder: &Path, line: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    command.args(line).current_dir(folder).env_remove("RUST_LOG").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that succeeds, and returns what it printed.
fn printed(folder: &Path, line: &[&str]) -> String {
    let output = vvm(folder, line);
    assert!(output.status.success(), "{line:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A folder with a key, and the public key for nodes.
fn with_key() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let line = ["token", "keygen", "--out", "key.json", "--public", "keys.json"];
    printed(folder.path(), &line);
    folder
}

/// Makes a token in a file.
fn token(folder: &Path, file: &str, rights: &str, more: &[&str]) -> String {
    let line = ["token", "new", "--key", "key.json", "--issuer", ISSUER, "--rights", rights];
    let line = [&line[..], &["--subject", file, "--for", "1h"], more].concat();
    let token = printed(folder, &line);
    fs::write(folder.join(file), &token).unwrap();
    token.trim().to_owned()
}

const EVERYWHERE: [&str; 4] = ["--app", "*", "--workspaces", "*"];

#[test]
fn commands_for_a_node_send_a_token() {
    let folder = with_key();
    let folder = folder.path();
    let node = NodeProcess::start(folder, CONFIG).ready();
    token(folder, "operator", "admin", &EVERYWHERE);
    token(folder, "client", "read,write", &["--app", "demo/shop", "--workspaces", "*"]);
    let (api, admin) = (node.api.to_string(), node.admin.to_string());
    let lines: [(&[&str], &str, &str); 4] = [
        // The bench makes the workspaces.
        (&["bench", "--node", &api, "--seconds", "1", "--clients", "2"], "client", "operator"),
        (&["status", "--admin", &admin], "operator", "client"),
        (&["cluster", "status", "--admin", &admin], "operator", "client"),
        (&["repair", "list", "--admin", &admin], "operator", "client"),
    ];
    // The command without a token reaches the node, and names the option.
    let status = vvm(folder, &["status", "--admin", &admin]);
    let why = text(&status.stderr);
    assert!(status.status.code() == Some(1) && why.contains("refused the request: 401"), "{why}");
    assert!(why.contains("--token-file FILE, or VVM_TOKEN_FILE"), "{why}");
    // A file that could not be a token was sent anyway.
    let operator = fs::read_to_string(folder.join("operator")).unwrap();
    for (file, content, part) in [
        ("empty", "\n".to_owned(), "is empty"),
        ("header", format!("Bearer {operator}"), "`Bearer`"),
    ] {
        fs::write(folder.join(file), content).unwrap();
        let refused = vvm(folder, &["status", "--admin", &admin, "--token-file", file]);
        let why = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && why.contains(part), "{why}");
    }
    for (line, right, wrong) in lines {
        let none = vvm(folder, line);
        assert!(!none.status.success(), "{line:?}");
        let why = text(&none.stderr) + &text(&none.stdout);
        assert!(why.contains("--token-file FILE"), "{line:?}: {why}");
        let with = |file| [line, &["--token-file", file]].concat();
        let refused = vvm(folder, &with(wrong));
        let why = text(&refused.stderr) + &text(&refused.stdout);
        assert!(!refused.status.success() && why.contains("does not grant"), "{line:?}: {why}");
        printed(folder, &with(right));
    }
    let log = node.log_text();
    let secret = fs::read_to_string(folder.join("operator")).unwrap();
    assert!(!log.contains(secret.trim()), "a token is in the log");
    node.stop();
}

/// An operator finds each request in the log, with its sender and without its token.
#[test]
fn the_log_has_each_request_at_the_level_debug() {
    let folder = with_key();
    let folder = folder.path();
    let config = format!("{CONFIG}[log]\nfilter = \"info,http_api=debug\"\nformat = \"json\"\n");
    let mut node = NodeProcess::start(folder, &config).ready();
    let token = token(folder, "client", "read", &["--app", "demo/shop", "--workspaces", "*"]);
    let path = shop::http_client::workspace_path(1) + "/wlog";
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("x-request-id", "asked-1")];
    let (status, _) =
        shop::http_client::try_request(node.api, "GET", &format!("{path}?from=2"), &headers, "")
            .unwrap();
    assert_eq!(status, 404, "there is no workspace");
    // The line of a refused client named anybody.
    let draw = "/api/v2/apps/demo/shop/workspaces/1/numbers/order/next";
    let refused = shop::http_client::try_request(node.api, "POST", draw, &headers[..1], "{}");
    assert_eq!(refused.unwrap().0, 403);
    // These requests left no line.
    let inspect = ["inspect", "rows", "--keyspace", "sysvvm", "--admin", &node.admin.to_string()];
    assert!(!vvm(folder, &inspect).status.success());
    let with_token = [&inspect[..], &["--token-file", "client"]].concat();
    assert!(!vvm(folder, &with_token).status.success());
    // The log is written after the answers, and whole when the node has stopped.
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
    let lines = node.log_text();
    let answered = lines.lines().find(|line| line.contains("request answered"));
    let line: serde_json::Value = serde_json::from_str(answered.expect(&lines)).unwrap();
    let text = line.to_string();
    for expected in [
        r#""principal":"https://issuer.example|client""#,
        r#""request":"asked-1""#,
        r#""method":"GET""#,
        &format!(r#""path":"{path}""#),
        r#""status":404"#,
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert!(!lines.contains(&token), "a token is in the log");
    let line_with = |parts: &[&str]| {
        let found = lines.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "{parts:?}: {lines}");
    };
    let client = r#""principal":"https://issuer.example|client""#;
    line_with(&["request answered", client, r#""status":403"#]);
    let refused = ["request of an operator refused", r#""action":"/inspect/rows""#];
    line_with(&[&refused[..], &[client, r#""status":403"#]].concat());
    line_with(&[&refused[..], &[r#""status":401"#]].concat());
}

#[test]
fn a_key_is_private_and_a_token_is_shown_as_it_is() {
    let folder = with_key();
    let folder = folder.path();
    let mode = |file: &str| fs::metadata(folder.join(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("key.json"), mode("keys.json")), (0o600, 0o644));
    let again = vvm(folder, &["token", "keygen", "--out", "key.json", "--public", "new.json"]);
    assert_eq!(again.status.code(), Some(2), "a key was overwritten");
    let again = vvm(folder, &["token", "keygen", "--out", "new.json", "--public", "keys.json"]);
    assert!(again.status.code() == Some(2) && !folder.join("new.json").exists());
    // A private key was left, in the second case under the name of the public one.
    for (public, code) in [("none/keys.json", 1), ("new.json", 2), ("./new.json", 1)] {
        let again = vvm(folder, &["token", "keygen", "--out", "new.json", "--public", public]);
        assert_eq!(again.status.code(), Some(code), "{public}: {}", text(&again.stderr));
        assert!(!folder.join("new.json").exists(), "{public}");
    }
    let line = ["token", "new", "--key", "key.json", "--issuer", ISSUER, "--rights", "read"];
    let line = [&line[..], &["--subject", "a", "--for", "1h"], &EVERYWHERE].concat();
    assert_eq!(text(&vvm(folder, &line).stderr), "");
    fs::set_permissions(folder.join("key.json"), fs::Permissions::from_mode(0o644)).unwrap();
    let warned = text(&vvm(folder, &line).stderr);
    assert!(warned.contains("all users of this machine can read key.json"), "{warned}");
    assert!(warned.contains("run `chmod 600 key.json`"), "{warned}");
    let token = token(folder, "reader", "read", &["--app", "acme/shop", "--workspaces", "7,8"]);
    let shown = printed(folder, &["token", "show", &token]);
    assert!(shown.contains("\"workspaces\": [\n        7,\n        8"), "{shown}");
    assert!(shown.contains("was not checked") && shown.contains("it ends in 3"), "{shown}");
    // The command took the issuer and the audience from the token, so it called tokens good that
    // every node refused.
    let with_keys = ["token", "show", &token, "--keys", "keys.json"];
    for (more, takes) in [
        (&[][..], true),
        (&["--issuer", ISSUER], true),
        (&["--issuer", "https://other.example"], false),
        (&["--audience", "other"], false),
    ] {
        let shown = vvm(folder, &[&with_keys[..], more].concat());
        assert_eq!(shown.status.code(), Some(i32::from(!takes)), "{more:?}");
        let shown = text(&shown.stdout);
        assert_eq!(
            shown.contains(&format!("takes the token of {ISSUER}|reader")),
            takes,
            "{shown}"
        );
        assert_eq!(shown.contains("--issuer checks it"), takes && more.is_empty(), "{shown}");
    }
    // The header and the claims `{}`: the command called the year 1970 the end of the token.
    let endless = printed(folder, &["token", "show", "e30.e30.AA"]);
    assert!(endless.contains("it has no end"), "{endless}");
    let file = vvm(folder, &["token", "show", "reader"]);
    assert!(text(&file.stderr).contains("`vvm token show - <reader`"), "{}", text(&file.stderr));
    let nowhere = [&line[..], &["--out", "none/token"]].concat();
    let why = text(&vvm(folder, &nowhere).stderr);
    let expected = "cannot write the token file none/token: the folder none does not exist";
    assert!(why.contains(expected) && !why.contains(".tmp"), "{why}");
    printed(folder, &["token", "keygen", "--out", "other.json", "--public", "others.json"]);
    let shown = vvm(folder, &["token", "show", &token, "--keys", "others.json"]);
    assert_eq!(shown.status.code(), Some(1));
    let shown = text(&shown.stdout);
    assert!(shown.contains("refuses the token: no key has the id"), "{shown}");
    for (wrong, why) in [
        (["--app", "shop", "--workspaces", "*"], "`app`"),
        (["--app", "*", "--workspaces", "x"], "numbers of workspaces"),
    ] {
        let line = ["token", "new", "--key", "key.json", "--issuer", ISSUER, "--rights", "read"];
        let output = vvm(folder, &[&line[..], &["--subject", "a", "--for", "1h"], &wrong].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
}

/// The command warned that the readers of the public keys can make tokens, and named no other file.
#[test]
fn public_keys_in_the_place_of_a_private_one_are_refused() {
    let folder = with_key();
    let line = ["token", "new", "--key", "keys.json", "--issuer", ISSUER, "--rights", "read"];
    let line = [&line[..], &["--subject", "a", "--for", "1h"], &EVERYWHERE].concat();
    let refused = vvm(folder.path(), &line);
    assert_eq!(refused.status.code(), Some(2));
    let why = text(&refused.stderr);
    assert!(why.contains("keys.json: the file holds public keys"), "{why}");
    assert!(why.contains("`vvm token keygen --out FILE`") && !why.contains("warning"), "{why}");
}

/// Some errors were only the path and "No such file or directory".
#[test]
fn an_error_of_a_missing_file_says_what_could_not_be_done_with_which_file() {
    let folder = with_key();
    let token = token(folder.path(), "reader", "read", &EVERYWHERE);
    let new = ["token", "new", "--key", "none", "--issuer", ISSUER, "--rights", "read"];
    let new = [&new[..], &["--subject", "a", "--for", "1h"], &EVERYWHERE].concat();
    let status =
        |more: [&'static str; 2]| [&["status", "--admin", "localhost:1"][..], &more].concat();
    let lines: [(&[&str], &str); 5] = [
        (&new, "read the key file none"),
        (&["token", "show", &token, "--keys", "none"], "read the file of public keys none"),
        (&status(["--token-file", "none"]), "read the token file none"),
        (&status(["--ca-file", "none"]), "read the file of certificates none"),
        (&["config", "check", "--config", "none"], "read the configuration file none"),
    ];
    for (line, part) in lines {
        let why = text(&vvm(folder.path(), line).stderr);
        assert!(why.contains(&format!("cannot {part}: No such file")), "{line:?}: {why}");
    }
    let new = [&["token", "new", "--out", "none/token", "--key", "key.json"][..], &EVERYWHERE];
    let new = [&new.concat()[..], &["--issuer", ISSUER, "--rights", "read"]].concat();
    let new = [&new[..], &["--subject", "a", "--for", "1h"]].concat();
    for (line, part) in [
        (&["token", "keygen", "--out", "none/key", "--public", "keys"][..], "key file none/key"),
        (&new, "token file none/token"),
    ] {
        let why = text(&vvm(folder.path(), line).stderr);
        let expected = format!("cannot write the {part}: the folder none does not exist: make it");
        assert!(why.contains(&expected), "{line:?}: {why}");
    }
}

/// The file of a token could be read by all users of the machine, as the shell made it.
#[test]
fn a_token_in_a_file_is_private() {
    let folder = with_key();
    let folder = folder.path();
    let new = |out: &str| {
        let line = ["token", "new", "--key", "key.json", "--issuer", ISSUER, "--rights", "admin"];
        let more = ["--subject", "joe", "--for", "1h", "--out", out];
        vvm(folder, &[&line[..], &more, &EVERYWHERE].concat())
    };
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    let made = new("operator");
    assert!(made.status.success() && text(&made.stdout).is_empty(), "{made:?}");
    let mode = || fs::metadata(folder.join("operator")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    printed(folder, &["token", "show", read("operator").trim(), "--keys", "keys.json"]);
    let node = node::free().to_string();
    let line = ["status", "--admin", &node, "--token-file", "operator"];
    let silent = text(&vvm(folder, &line).stderr);
    assert!(!silent.contains("warning"), "{silent}");
    fs::set_permissions(folder.join("operator"), fs::Permissions::from_mode(0o644)).unwrap();
    let warned = text(&vvm(folder, &line).stderr);
    let expected = "warning: all users of this machine can read the token in operator";
    assert_eq!(warned.matches(expected).count(), 1, "{warned}");
    // A former token is replaced, by a private file. No other file is.
    assert!(new("operator").status.success());
    assert_eq!(mode(), 0o600);
    let key = read("key.json");
    let refused = new("key.json");
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert_eq!(read("key.json"), key);
}

/// A token that is sent without TLS to another machine is no secret any more.
#[test]
fn a_token_is_not_sent_in_clear_to_another_machine() {
    let folder = with_key();
    let folder = folder.path();
    token(folder, "operator", "admin", &EVERYWHERE);
    for node in ["10.255.255.1:1", "http://node.example:1"] {
        let line = ["status", "--admin", node, "--token-file", "operator"];
        let output = vvm(folder, &line);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("without TLS"), "{}", text(&output.stderr));
    }
}

/// The configurations that a node refuses, and those that it takes although other machines can
/// reach it.
#[test]
fn a_node_that_others_can_reach_needs_tokens_or_a_permission() {
    let folder = with_key();
    let folder = folder.path();
    let check = |config: &str| {
        fs::write(folder.join("node.toml"), config).unwrap();
        let output = vvm(folder, &["config", "check", "--config", "node.toml"]);
        (output.status.code().unwrap(), text(&output.stderr))
    };
    let open = "[http]\nlisten = \"0.0.0.0:1\"\n[admin]\nlisten = \"0.0.0.0:2\"\n";
    let (code, why) = check(open);
    assert!(code == 3 && why.contains("demand tokens with the section `access`"), "{why}");
    let (code, why) = check(&format!("{CONFIG}{open}"));
    assert_eq!(code, 0, "{why}");
    let both = "[http]\nallow_unauthenticated = true\n";
    let (code, why) = check(&format!("{CONFIG}{both}"));
    assert!(code == 3 && why.contains("remove one of the two"), "{why}");
    let pages = |origin: &str| format!("[http]\npage_origins = [\"{origin}\"]\n");
    let (code, why) = check(&pages("https://app.example"));
    assert!(code == 3 && why.contains("add the section `access`"), "{why}");
    let (code, why) = check(&format!("{CONFIG}{}", pages("https://app.example:8443")));
    assert_eq!(code, 0, "{why}");
    for wrong in ["*", "app.example", "https://", "https://app.example/", "https://*.example"] {
        let (code, why) = check(&format!("{CONFIG}{}", pages(wrong)));
        assert!(code == 3 && why.contains("is not the origin of a page"), "{wrong}: {why}");
    }
    let private = CONFIG.replace("keys.json", "key.json");
    let (code, why) = check(&private);
    assert!(code == 3 && why.contains("access.keys_file"), "{why}");
    assert!(why.contains("private key") && !why.contains("missing field"), "{why}");
    let (code, why) = check(&CONFIG.replace("keys.json", "none.json"));
    assert!(code == 3 && why.contains("cannot be read"), "{why}");
}
