//! `vvm token`: keys and tokens, without an issuer.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::ExitCode,
};

use clock::Clock;
use httpapi::access::{
    Grant, Grants, KeySet, NewToken, SigningError, SigningKey, TokenContent, TokenRules,
    TokenVerifier,
};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::{
    cli::{KeygenArgs, NewTokenArgs, ShowTokenArgs, TokenCommand},
    command_error::CommandError,
    logs::say,
    print,
    private_file::needless_readers,
};

/// Only the owner reads and writes the file.
const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;

pub(crate) fn run(command: TokenCommand) -> Result<ExitCode, CommandError> {
    let now = Clock::system().wall().as_millis() / 1_000;
    match command {
        TokenCommand::Keygen(args) => keygen(&args)?,
        TokenCommand::New(args) => {
            let out = args.out.clone();
            let token = new_token(args, now)?;
            match out {
                Some(path) => write_token(&path, &token)?,
                None => print(&format!("{token}\n"))?,
            }
        }
        TokenCommand::Show(args) => {
            let (text, is_refused) = shown(&args, now)?;
            print(&text)?;
            if is_refused {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn keygen(KeygenArgs { out, public }: &KeygenArgs) -> Result<(), CommandError> {
    let failed = |error: SigningError| CommandError::unfinished(error.to_string());
    if let Some(there) = [out, public].into_iter().find(|path| path.exists()) {
        let why = "the file is there already: choose another name";
        return Err(CommandError::usage(format!("{}: {why}", there.display())));
    }
    let key = SigningKey::generate().map_err(failed)?;
    write_new(out, PRIVATE, &key.to_private().map_err(failed)?)?;
    write_new(public, PUBLIC, &key.public_keys())?;
    print(&format!(
        "private key {}: {}\npublic key for the nodes: {}\n",
        key.id(),
        out.display(),
        public.display()
    ))
}

/// Writes a file that does not exist yet. A key that is overwritten cannot be made again.
fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), CommandError> {
    let failed = |error| CommandError::unfinished(format!("{}: {error}", path.display()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(format!("{text}\n").as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)
}

/// Writes a token to a file that only its owner can read. A former token is replaced at once, so that
/// commands that go on find either token. Another file is kept: it may be a key.
fn write_token(path: &Path, token: &str) -> Result<(), CommandError> {
    let failed = |error| CommandError::unfinished(format!("{}: {error}", path.display()));
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Ok(former) if TokenContent::read(former.trim()).is_ok() => {}
        _ => {
            let why = "the file is there already, and holds no token: choose another name";
            return Err(CommandError::usage(format!("{}: {why}", path.display())));
        }
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Only the owner reads and writes a temporary file.
    let mut file = NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(failed)?;
    file.write_all(format!("{token}\n").as_bytes()).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map(drop).map_err(|error| failed(io::Error::from(error)))
}

fn new_token(args: NewTokenArgs, now: u64) -> Result<String, CommandError> {
    let NewTokenArgs { key, issuer, audience, subject, app, workspaces, rights, lifetime, .. } =
        args;
    let app = (app != "*").then_some(app);
    let grants = Grants::new([Grant { app, workspaces, rights: rights.into_iter().collect() }]);
    let checked: Result<Grants, _> = grants.to_string().parse();
    let grants = checked.map_err(|error| CommandError::usage(error.to_string()))?;
    if let Some(readers) = needless_readers(&key) {
        let file = key.display();
        say(format!("warning: {readers} can read {file}, and make tokens: run `chmod 600 {file}`"));
    }
    let key = SigningKey::from_private(&text_of(&key)?)
        .map_err(|error| CommandError::usage(format!("{}: {error}", key.display())))?;
    let expires = now + lifetime.as_secs();
    let token = NewToken { issuer, audience, subject, issued: now, expires, grants };
    key.sign(&token).map_err(|error| CommandError::usage(error.to_string()))
}

/// Returns the text, and whether a node with the given keys refuses the token.
fn shown(
    ShowTokenArgs { token, keys }: &ShowTokenArgs,
    now: u64,
) -> Result<(String, bool), CommandError> {
    let mut read = String::new();
    let token = match &**token {
        "-" => {
            let failed = |error| CommandError::unfinished(format!("the standard input: {error}"));
            io::stdin().read_to_string(&mut read).map_err(failed)?;
            read.trim()
        }
        token => token,
    };
    let content =
        TokenContent::read(token).map_err(|error| CommandError::usage(error.to_string()))?;
    let expires = content.claims["exp"].as_f64().unwrap_or_default() as u64;
    let left = match expires.checked_sub(now) {
        Some(left) => format!("it ends in {left} s"),
        None => format!("it ended {} s ago", now - expires),
    };
    let checked = match keys {
        None => {
            Ok("the signature was not checked: give the public keys with --keys FILE".to_owned())
        }
        Some(path) => {
            let keys = KeySet::parse(text_of(path)?.as_bytes())
                .map_err(|error| CommandError::usage(format!("{}: {error}", path.display())))?;
            checked(token, &content.claims, keys, now)
        }
    };
    let is_refused = checked.is_err();
    let checked = checked.unwrap_or_else(|refused| refused);
    let TokenContent { header, claims, .. } = content;
    Ok((format!("header {header:#}\nclaims {claims:#}\n{left}\n{checked}\n"), is_refused))
}

/// Checks a token for the issuer and the audience that the token itself names. The error says why a
/// node refuses the token.
fn checked(token: &str, claims: &Value, keys: KeySet, now: u64) -> Result<String, String> {
    let audience = claims["aud"].as_str().or(claims["aud"][0].as_str()).unwrap_or_default();
    let rules = TokenRules::new(claims["iss"].as_str().unwrap_or_default(), audience);
    match TokenVerifier::new(rules, keys).verify(token, now) {
        Ok(caller) => Ok(format!(
            "the signature is right: a node with these keys, this issuer and this audience takes the token of {}",
            caller.principal
        )),
        Err(why) => Err(format!("a node with these keys refuses the token: {why}")),
    }
}

fn text_of(path: &Path) -> Result<String, CommandError> {
    fs::read_to_string(path)
        .map_err(|error| CommandError::usage(format!("{}: {error}", path.display())))
}
