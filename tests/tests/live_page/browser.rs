//! A headless Chromium, driven by a chromedriver that this test starts.

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use clock::Clock;
use fantoccini::{Client, ClientBuilder, wd::WebDriverCompatibleCommand};
use hyper::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;
use url::{ParseError, Url};

/// The longest wait for something that the page must show.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs chromedriver until the standard input ends. The kernel closes the input when this test ends
/// in any way, also by a signal.
const DRIVER: &str = r#""$0" --port=0 < /dev/null & read -r _; kill $!; wait $!"#;

/// The programs that a browser needs.
pub(crate) struct Programs {
    chromedriver: PathBuf,
    chromium: PathBuf,
}

impl Programs {
    /// Finds the programs; `None` if one of them is not installed.
    pub(crate) fn find() -> Option<Programs> {
        let folders = env::var_os("PATH")?;
        let find =
            |name: &str| env::split_paths(&folders).map(|at| at.join(name)).find(|at| at.is_file());
        Some(Programs { chromedriver: find("chromedriver")?, chromium: find("chromium")? })
    }
}

/// A browser, and the process that drives it.
pub(crate) struct Browser {
    client: Client,
    driver: Driver,
}

impl Browser {
    pub(crate) async fn open(programs: &Programs) -> Browser {
        let driver = Driver::start(programs);
        let mut arguments = vec![
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            // The browser ends when chromedriver does, even if chromedriver is killed.
            "--remote-debugging-pipe",
        ];
        if rustix::process::geteuid().is_root() {
            // Chromium refuses to run as root in its sandbox.
            arguments.push("--no-sandbox");
        }
        let capabilities = json!({
            "goog:chromeOptions": { "binary": programs.chromium, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let Value::Object(capabilities) = capabilities else { unreachable!() };
        let address = format!("http://127.0.0.1:{}", driver.port);
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(capabilities).connect(&address).await.unwrap();
        Browser { client, driver }
    }

    pub(crate) fn page(&self) -> Page {
        Page { client: self.client.clone() }
    }

    pub(crate) async fn close(self) {
        let Browser { client, driver } = self;
        client.close().await.unwrap();
        drop(driver);
    }
}

/// A chromedriver on a free port of the loopback address. Dropping it ends the process.
struct Driver {
    shell: Child,
    port: u16,
    /// The folder of all files of the browser.
    _folder: TempDir,
}

impl Driver {
    fn start(programs: &Programs) -> Driver {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("output");
        let file = fs::File::create(&output).unwrap();
        let shell = Command::new("sh")
            .args(["-c", DRIVER])
            .arg(&programs.chromedriver)
            .env("TMPDIR", folder.path())
            .stdin(Stdio::piped())
            .stderr(file.try_clone().unwrap())
            .stdout(file)
            .spawn()
            .unwrap();
        let mut driver = Driver { shell, port: 0, _folder: folder };
        for _ in 0..1_000 {
            let text = fs::read_to_string(&output).unwrap();
            let port = text.split_once("started successfully on port ");
            if let Some((port, _)) = port.and_then(|(_, rest)| rest.split_once('.')) {
                driver.port = port.parse().unwrap();
                return driver;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("chromedriver did not start: {}", fs::read_to_string(&output).unwrap());
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // There is nothing to do about a process that cannot be waited for.
        let _ = self.shell.wait();
    }
}

/// The screen that shows the page, and the wishes of its user.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) scale: f64,
    pub(crate) is_phone: bool,
    pub(crate) is_dark: bool,
    pub(crate) is_calm: bool,
}

/// The page that the browser shows.
pub(crate) struct Page {
    client: Client,
}

impl Page {
    pub(crate) async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    /// Changes the screen.
    pub(crate) async fn look(&self, look: Look) {
        let screen = json!({
            "width": look.width, "height": look.height, "deviceScaleFactor": look.scale,
            "mobile": look.is_phone,
        });
        let feature = |name: &str, value: &str| json!({ "name": name, "value": value });
        let features = [
            feature("prefers-color-scheme", if look.is_dark { "dark" } else { "light" }),
            feature(
                "prefers-reduced-motion",
                if look.is_calm { "reduce" } else { "no-preference" },
            ),
        ];
        self.devtools("Emulation.setDeviceMetricsOverride", screen).await;
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    async fn devtools(&self, command: &'static str, parameters: Value) -> Value {
        self.vendor("goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await
    }

    async fn vendor(&self, path: &'static str, body: Value) -> Value {
        self.client.issue_cmd(VendorCommand { path, body }).await.unwrap()
    }

    /// The value of an expression of JavaScript.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        let script = format!("return {expression}");
        let value = self.client.execute(&script, vec![]).await;
        value.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    pub(crate) async fn text(&self, expression: &str) -> String {
        match self.value(expression).await {
            Value::String(text) => text,
            other => panic!("{expression}: {other}"),
        }
    }

    /// Waits until an expression is true.
    pub(crate) async fn wait(&self, expression: &str) {
        let clock = Clock::system();
        let deadline = clock.now() + PATIENCE;
        while self.value(expression).await != Value::Bool(true) {
            assert!(clock.now() < deadline, "never true: {expression}");
            clock.sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the text of an element contains a text.
    pub(crate) async fn wait_text(&self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        let found =
            format!("document.querySelector({selector})?.innerText.includes({text}) ?? false");
        self.wait(&found).await;
    }

    /// Clicks in the middle of an element, as a mouse does.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.client.find(fantoccini::Locator::Css(selector)).await;
        let element = element.unwrap_or_else(|error| panic!("{selector}: {error}"));
        element.click().await.unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    /// Presses a key, or several keys one after another, where the focus is.
    pub(crate) async fn press(&self, keys: &str) {
        self.client.active_element().await.unwrap().send_keys(keys).await.unwrap();
    }

    /// Presses the key Tab until an element that matches has the focus.
    pub(crate) async fn tab_to(&self, selector: &str) {
        let is_there = format!("document.activeElement.matches({})", json!(selector));
        for _ in 0..60 {
            if self.value(&is_there).await == Value::Bool(true) {
                return;
            }
            self.press("\u{e004}").await;
        }
        panic!("the key Tab does not lead to {selector}");
    }

    /// The lines of the console since the last call.
    pub(crate) async fn console(&self) -> Vec<String> {
        let lines = self.vendor("se/log", json!({ "type": "browser" })).await;
        let text = |line: &Value| line["message"].as_str().unwrap().to_owned();
        lines.as_array().unwrap().iter().map(text).collect()
    }

    pub(crate) async fn screenshot(&self) -> Vec<u8> {
        self.client.screenshot().await.unwrap()
    }

    /// The text of the page and its console, for the report of a failure.
    pub(crate) async fn report(&self) -> String {
        let text = self.text("document.body?.innerText ?? ''").await;
        format!("console: {:?}\npage:\n{text}", self.console().await)
    }
}

/// A command of chromedriver that the standard does not have.
#[derive(Debug)]
struct VendorCommand {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for VendorCommand {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}
