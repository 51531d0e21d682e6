//! Tokens in the header `Authorization`, and the file of keys.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex as StdMutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use access::{Caller, KeySet, KeySetError, TokenRefusal, TokenRules, TokenVerifier};
use async_trait::async_trait;
use clock::{Clock, Instant};
use hyper::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, Notify, watch};
use tracing::{info, warn};

use super::{Authenticator, NotAuthenticated};
use crate::{
    given_file::{READ_TIME, read, read_again, reported_if_late},
    limits::{Limit, LimitRules},
};

/// How often the file of keys is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The shortest pause between two looks, if tokens name unknown keys.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The most requests that wait for a look at the file. Others must come again.
const MOST_WAITING: usize = 32;

/// The most bytes of a file of keys. A larger file is not a file of keys.
const MOST_BYTES: u64 = 1 << 20;

/// The longest wait of a request for a look at the file. A look begins within a second. The rest is
/// for its read on a busy machine.
const LOOK_WITHIN: Duration = Duration::from_secs(3);

/// A file of keys that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct AccessFileError {
    path: PathBuf,
    why: FileProblem,
}

#[derive(Debug, thiserror::Error)]
enum FileProblem {
    #[error("the file cannot be read: {0}")]
    Unread(io::Error),
    #[error(transparent)]
    Keys(KeySetError),
}

/// Knows the sender of a request by a token (JWT) that an issuer has signed.
///
/// The file of keys is read again when it changes, and when a token names an unknown key, at most
/// once a second. A file that cannot be used changes nothing. With an empty set of keys all tokens
/// are refused.
#[derive(Debug)]
pub struct TokenAuthenticator {
    rules: TokenRules,
    path: PathBuf,
    clock: Clock,
    current: watch::Sender<KeysInForce>,
    /// Why the file was refused at the last look.
    refused: StdMutex<Option<String>>,
    /// The number of looks that have begun.
    begun: AtomicU64,
    /// Bounds the requests that wait for a look. Each holds its place for one look.
    waiting: Arc<Limit>,
    is_wanted: Notify,
    /// One port follows the file, and the others wait for it.
    following: Mutex<()>,
}

/// The keys that were last found usable.
#[derive(Clone, Debug)]
struct KeysInForce {
    verifier: Arc<TokenVerifier>,
    digest: [u8; 32],
    /// The number of the last look that has ended. Looks are numbered as they begin.
    look: u64,
    /// When this look ended.
    looked: Instant,
}

impl TokenAuthenticator {
    /// Reads the file of keys, a JWKS.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn read(
        rules: TokenRules,
        keys_file: impl Into<PathBuf>,
        clock: Clock,
    ) -> Result<TokenAuthenticator, AccessFileError> {
        let path = keys_file.into();
        let (keys, digest) = parsed(&path, read(&path, MOST_BYTES))?;
        warn_of_unused(&path, &keys);
        let verifier = Arc::new(TokenVerifier::new(rules.clone(), keys));
        let looked = clock.now();
        let current = watch::Sender::new(KeysInForce { verifier, digest, look: 0, looked });
        let (is_wanted, following) = (Notify::new(), Mutex::new(()));
        let begun = AtomicU64::new(0);
        let waiting = LimitRules { most: MOST_WAITING, ..LimitRules::default() };
        let waiting = Limit::new(waiting, &clock);
        Ok(TokenAuthenticator {
            rules,
            path,
            clock,
            current,
            refused: StdMutex::default(),
            begun,
            waiting,
            is_wanted,
            following,
        })
    }

    /// Returns the keys that tokens are checked with now.
    pub fn key_set(&self) -> KeySet {
        self.keys().verifier.keys().clone()
    }

    fn keys(&self) -> KeysInForce {
        self.current.borrow().clone()
    }

    /// Asks for a look at the file, waits until the look after number `before` has ended, and
    /// returns the keys after it.
    ///
    /// # Errors
    /// If too many requests wait already, or if no look ends in time.
    async fn keys_after(
        &self,
        before: u64,
        until: Instant,
    ) -> Result<KeysInForce, NotAuthenticated> {
        self.is_wanted.notify_one();
        // Anybody can send tokens with unknown keys, and each would hold its connection.
        let place = self.waiting.try_take(None, 1);
        let _place = place.map_err(|_| NotAuthenticated::KeysUnread)?;
        let mut current = self.current.subscribe();
        let looked = current.wait_for(|now| now.look > before);
        let looked = self.clock.timeout_at(until, looked).await.ok();
        looked.and_then(Result::ok).map(|keys| keys.clone()).ok_or(NotAuthenticated::KeysUnread)
    }

    async fn look(&self) {
        self.look_at(read_again(&self.path, MOST_BYTES)).await;
    }

    /// Uses the bytes of the file, if they can be used.
    async fn look_at(&self, read: impl Future<Output = io::Result<Vec<u8>>>) {
        let look = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let is_late = || {
            let file = self.path.display();
            self.note_refused(Some(format!("{file}: the file was not read within {READ_TIME:?}")));
        };
        let read = parsed(&self.path, reported_if_late(&self.clock, read, is_late).await);
        let before = self.keys();
        let mut next = KeysInForce { look, looked: self.clock.now(), ..before };
        match read {
            Ok((_, digest)) if digest == next.digest => self.note_refused(None),
            Ok((keys, digest)) => {
                info!(file = %self.path.display(), keys = keys.ids().count(), "keys of tokens exchanged");
                warn_of_unused(&self.path, &keys);
                // A new verifier remembers no token that a former key has signed.
                next.verifier = Arc::new(TokenVerifier::new(self.rules.clone(), keys));
                next.digest = digest;
                self.note_refused(None);
            }
            Err(error) => self.note_refused(Some(error.to_string())),
        }
        self.current.send_replace(next);
    }
}

impl TokenAuthenticator {
    /// Shows whether the file was refused, and logs each reason once. Anybody can cause looks at
    /// the file, by tokens with unknown keys.
    fn note_refused(&self, why: Option<String>) {
        show_refused(why.is_some());
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &why
            && *refused != why
        {
            warn!(error, "new keys of tokens refused, the former ones stay");
        }
        *refused = why;
    }
}

fn show_refused(is_refused: bool) {
    metrics::gauge!("httpapi_key_file_refused").set(if is_refused { 1.0 } else { 0.0 });
}

#[async_trait]
impl Authenticator for TokenAuthenticator {
    async fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Caller>, NotAuthenticated> {
        let token = bearer(headers)?;
        let begun = self.begun.load(Ordering::SeqCst);
        let until = self.clock.now() + LOOK_WITHIN;
        let mut keys = self.keys();
        loop {
            match keys.verifier.verify(token, self.clock.wall().as_millis() / 1_000) {
                // A look that began before the request may have read the file before the issuer
                // replaced it. Only a later look shows that the file does not have the key.
                Err(TokenRefusal::UnknownKey) if keys.look <= begun => {
                    keys = self.keys_after(keys.look, until).await?;
                }
                verified => {
                    return verified.map_err(|why| NotAuthenticated::Refused(why.to_string()));
                }
            }
        }
    }

    async fn follow(&self) {
        let _alone = self.following.lock().await;
        // The program may have read the keys before it began to keep metrics.
        let is_refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        show_refused(is_refused);
        loop {
            let last = self.current.borrow().looked;
            self.clock.sleep_until(last + LOOK_PAUSE).await;
            // Either event causes a look.
            let wanted = self.is_wanted.notified();
            let _ = self.clock.timeout_at(last + LOOK_EVERY, wanted).await;
            self.look().await;
        }
    }
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, NotAuthenticated> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let refused = |why: &str| NotAuthenticated::Refused(why.to_owned());
    match (all.next(), all.next()) {
        (None, _) => Err(NotAuthenticated::NoToken),
        (Some(_), Some(_)) => Err(refused("the request has more than one `Authorization`")),
        (Some(one), None) => {
            let text = one.to_str().map_err(|_| refused("`Authorization` is not text"))?;
            match text.split_once(' ') {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
                _ => Err(NotAuthenticated::NoToken),
            }
        }
    }
}

fn parsed(path: &Path, text: io::Result<Vec<u8>>) -> Result<(KeySet, [u8; 32]), AccessFileError> {
    let problem = |why| AccessFileError { path: path.to_owned(), why };
    let text = text.map_err(|error| problem(FileProblem::Unread(error)))?;
    let keys = KeySet::parse(&text).map_err(|error| problem(FileProblem::Keys(error)))?;
    Ok((keys, Sha256::digest(&text).into()))
}

fn warn_of_unused(path: &Path, keys: &KeySet) {
    let file = path.display();
    for why in keys.skipped() {
        warn!(%file, why, "key of tokens skipped");
    }
    if keys.ids().next().is_none() {
        warn!(%file, "the file has no keys, all tokens are refused");
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use access::{Grants, NewToken, SigningKey};
    use clock::ManualClock;
    use futures::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    struct Node {
        tokens: TokenAuthenticator,
        manual: ManualClock,
        folder: tempfile::TempDir,
    }

    impl Node {
        fn new(key: &SigningKey) -> Node {
            let (manual, folder) = (ManualClock::new(1), tempfile::tempdir().unwrap());
            let path = folder.path().join("keys.json");
            std::fs::write(&path, key.public_keys()).unwrap();
            let rules = TokenRules::new("https://issuer.example", "vvm");
            let tokens = TokenAuthenticator::read(rules, path, manual.clock()).unwrap();
            Node { tokens, manual, folder }
        }

        /// The headers of a request with a token that ends late.
        fn headers(&self, key: &SigningKey) -> HeaderMap {
            let now = self.manual.clock().wall().as_millis() / 1_000;
            let token = NewToken {
                issuer: "https://issuer.example".to_owned(),
                audience: "vvm".to_owned(),
                subject: "a".to_owned(),
                issued: now,
                expires: now + 600,
                grants: Grants::default(),
            };
            let bearer = format!("Bearer {}", key.sign(&token).unwrap());
            HeaderMap::from_iter([(AUTHORIZATION, bearer.parse().unwrap())])
        }

        fn look(&self, key: &SigningKey) {
            self.tokens.look_at(async { Ok(key.public_keys().into()) }).now_or_never().unwrap();
        }
    }

    /// Clients with good tokens got 401 if more of them came than may wait for a look, or if no
    /// look ended in time.
    #[test]
    fn a_token_is_refused_only_after_a_look_at_the_keys() {
        let [former, new, stranger] = [(); 3].map(|()| SigningKey::generate().unwrap());
        let node = Node::new(&former);
        let (good, wrong) = (node.headers(&new), node.headers(&stranger));
        let ask = |headers| node.tokens.authenticate(headers);
        // Invented keys take all places.
        let mut invented: Vec<_> = (0..MOST_WAITING).map(|_| ask(&wrong)).collect();
        assert!(invented.iter_mut().all(|asked| asked.as_mut().now_or_never().is_none()));
        let unread = Some(Err(NotAuthenticated::KeysUnread));
        assert_eq!(ask(&good).now_or_never(), unread);
        // The next look ends the wait of all.
        node.look(&new);
        for asked in invented {
            let refused = asked.now_or_never().unwrap().unwrap_err();
            assert!(matches!(refused, NotAuthenticated::Refused(_)), "{refused}");
        }
        assert!(ask(&good).now_or_never().unwrap().is_ok());
        // No look ends in time.
        let mut late = ask(&wrong);
        assert!(late.as_mut().now_or_never().is_none());
        node.manual.advance(LOOK_WITHIN);
        assert_eq!(late.now_or_never(), unread);
    }

    /// A look may have read the file before the issuer replaced it.
    #[test]
    fn a_look_that_began_before_the_request_refuses_no_token() {
        let [former, new] = [(); 2].map(|()| SigningKey::generate().unwrap());
        let node = Node::new(&former);
        let good = node.headers(&new);
        let (sender, read) = oneshot::channel();
        let mut early = pin!(node.tokens.look_at(async { Ok(read.await.unwrap()) }));
        assert!(early.as_mut().now_or_never().is_none());
        let mut asked = node.tokens.authenticate(&good);
        assert!(asked.as_mut().now_or_never().is_none());
        sender.send(former.public_keys().into()).unwrap();
        assert!(early.now_or_never().is_some());
        assert!(asked.as_mut().now_or_never().is_none(), "the look has shown nothing");
        node.look(&new);
        assert!(asked.now_or_never().unwrap().is_ok());
    }

    /// A token with an unknown key waited for a second although the last look at the file was long
    /// ago.
    #[tokio::test]
    async fn a_look_begins_at_once_if_the_last_one_is_old() {
        let [former, new] = [(); 2].map(|()| SigningKey::generate().unwrap());
        let node = Node::new(&former);
        node.manual.advance(LOOK_PAUSE);
        std::fs::write(node.folder.path().join("keys.json"), new.public_keys()).unwrap();
        let (good, system) = (node.headers(&new), Clock::system());
        // The time of the node stands still, so only the request causes a look.
        tokio::select! {
            caller = node.tokens.authenticate(&good) => assert!(caller.is_ok()),
            () = node.tokens.follow() => {}
            () = system.sleep(Duration::from_secs(20)) => panic!("nobody looks"),
        }
    }

    /// A look whose read did not end was not reported, and the metric said that the file was used.
    #[test]
    fn a_read_of_the_keys_that_does_not_end_is_reported() {
        let manual = ManualClock::new(1);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        let keys = SigningKey::generate().unwrap().public_keys();
        std::fs::write(&path, &keys).unwrap();
        let rules = TokenRules::new("https://issuer.example", "vvm");
        let tokens = TokenAuthenticator::read(rules, path, manual.clock()).unwrap();
        let (sender, read) = oneshot::channel();
        let mut look = pin!(tokens.look_at(async { Ok(read.await.unwrap()) }));
        let is_refused = || tokens.refused.lock().unwrap().clone();
        manual.advance(READ_TIME / 2);
        assert!(look.as_mut().now_or_never().is_none() && is_refused().is_none());
        manual.advance(READ_TIME);
        assert!(look.as_mut().now_or_never().is_none());
        let why = is_refused().unwrap();
        assert!(why.contains("keys.json: the file was not read within 10s"), "{why}");
        // The read ends at last.
        sender.send(keys.into()).unwrap();
        assert!(look.now_or_never().is_some() && is_refused().is_none());
    }
}
