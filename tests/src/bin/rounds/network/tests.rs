//! Links with real connections.

use tokio::net::TcpListener;

use super::*;

const SOON: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(100);

/// A server that sends back what it receives, a link to it, and a connection over the link.
async fn connected(clock: &Clock) -> (JoinSet<()>, Link, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut read, mut write) = stream.split();
            // The link may be cut.
            let _ = io::copy(&mut read, &mut write).await;
        }
    });
    let link = Link::start(server, clock).await.unwrap();
    let stream = TcpStream::connect(link.address).await.unwrap();
    (tasks, link, stream)
}

#[tokio::test]
async fn bytes_that_stall_pass_when_the_fault_is_over() {
    let clock = Clock::system();
    for traffic in [
        Traffic::Flows { to_server: Flow::Stalled, to_client: Flow::Whole },
        Traffic::Flows { to_server: Flow::Whole, to_client: Flow::Stalled },
    ] {
        let (_server, link, mut stream) = connected(&clock).await;
        let mut byte = [0];
        stream.write_all(b"a").await.unwrap();
        stream.read_exact(&mut byte).await.unwrap();
        link.set(traffic);
        stream.write_all(b"b").await.unwrap();
        let read = stream.read_exact(&mut byte);
        assert!(clock.timeout_at(clock.now() + SHORT, read).await.is_err(), "{traffic:?}");
        link.set(Traffic::WHOLE);
        let read = stream.read_exact(&mut byte);
        clock.timeout_at(clock.now() + SOON, read).await.unwrap().unwrap();
        assert_eq!(byte, *b"b");
    }
}

#[tokio::test]
async fn a_link_that_is_cut_or_refused_closes_its_connections() {
    let clock = Clock::system();
    for traffic in [Traffic::Cut, Traffic::Refused] {
        let (_server, link, mut stream) = connected(&clock).await;
        stream.write_all(b"a").await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
        link.set(traffic);
        let mut byte = [0];
        let read = stream.read(&mut byte);
        let read = clock.timeout_at(clock.now() + SOON, read).await.unwrap();
        assert!(matches!(read, Ok(0) | Err(_)), "{traffic}: {read:?}");
    }
}

#[tokio::test]
async fn new_connections_are_refused_at_once_until_the_fault_is_over() {
    let clock = Clock::system();
    let (_server, link, stream) = connected(&clock).await;
    drop(stream);
    let is_refused = async || {
        let connected = TcpStream::connect(link.address).await;
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    for _ in 0..3 {
        let deadline = clock.now() + SOON;
        link.set(Traffic::Refused);
        // The link may still take a connection that comes at the same moment.
        while !is_refused().await && clock.now() < deadline {}
        for _ in 0..5 {
            assert!(is_refused().await);
        }
        let taken = TcpListener::bind(link.address).await;
        assert!(taken.is_err(), "the port stays that of the link");
        link.set(Traffic::WHOLE);
        let mut stream = loop {
            match TcpStream::connect(link.address).await {
                Ok(stream) => break stream,
                Err(error) => assert!(clock.now() < deadline, "{error}"),
            }
        };
        stream.write_all(b"a").await.unwrap();
        let mut byte = [0];
        let read = stream.read_exact(&mut byte);
        clock.timeout_at(deadline, read).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_link_that_stalls_answers_no_new_connection() {
    let clock = Clock::system();
    for traffic in [
        Traffic::both(Flow::Stalled),
        Traffic::Flows { to_server: Flow::Whole, to_client: Flow::Stalled },
    ] {
        let (_server, link, stream) = connected(&clock).await;
        drop(stream);
        link.set(traffic);
        clock.sleep(SHORT).await;
        let mut connects = Box::pin(TcpStream::connect(link.address));
        let answer = clock.timeout_at(clock.now() + SHORT * 3, &mut connects).await;
        assert!(answer.is_err(), "{traffic}: {answer:?}");
        link.set(Traffic::WHOLE);
        // The system asks again after 1 s, and then after 2 s more.
        let mut stream = clock.timeout_at(clock.now() + SOON, connects).await.unwrap().unwrap();
        stream.write_all(b"a").await.unwrap();
        let mut byte = [0];
        let read = stream.read_exact(&mut byte);
        clock.timeout_at(clock.now() + SOON, read).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn bad_traffic_without_a_connection_or_a_byte_hits_nothing() {
    let clock = Clock::system();
    let (_server, link, mut stream) = connected(&clock).await;
    let mut byte = [0];
    let late = Flow::Late(Duration::from_millis(20));
    let bad = [Traffic::both(late), Traffic::both(Flow::Slow(1_000)), Traffic::Cut];
    for traffic in bad {
        stream.write_all(b"a").await.unwrap();
        stream.read_exact(&mut byte).await.unwrap();
        link.set(traffic);
        let is_cut = traffic == Traffic::Cut;
        if !is_cut {
            clock.sleep(SHORT).await;
            assert!(!link.was_hit(), "{traffic}: nobody sends anything");
            stream.write_all(b"a").await.unwrap();
        }
        let deadline = clock.now() + SOON;
        while !link.was_hit() && clock.now() < deadline {
            clock.sleep(Duration::from_millis(10)).await;
        }
        link.set(Traffic::WHOLE);
        assert!(link.was_hit(), "{traffic}");
        if !is_cut {
            stream.read_exact(&mut byte).await.unwrap();
        }
    }
    link.set(Traffic::Cut);
    clock.sleep(SHORT).await;
    assert!(!link.was_hit(), "there is no connection any more");
    drop(TcpStream::connect(link.address).await);
    let deadline = clock.now() + SOON;
    while !link.was_hit() && clock.now() < deadline {
        clock.sleep(Duration::from_millis(10)).await;
    }
    assert!(link.was_hit(), "a new connection was cut");
}

#[tokio::test]
async fn the_end_of_a_connection_stalls_like_its_bytes() {
    let clock = Clock::system();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let link = Link::start(listener.local_addr().unwrap(), &clock).await.unwrap();
    let client = TcpStream::connect(link.address).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    link.set(Traffic::both(Flow::Stalled));
    drop(client);
    let mut byte = [0];
    let read = server.read(&mut byte);
    assert!(clock.timeout_at(clock.now() + SHORT, read).await.is_err(), "it heard of the end");
    link.set(Traffic::WHOLE);
    let read = server.read(&mut byte);
    assert_eq!(clock.timeout_at(clock.now() + SOON, read).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn slow_bytes_come_one_after_another() {
    let clock = Clock::system();
    let (_server, link, mut stream) = connected(&clock).await;
    link.set(Traffic::Flows { to_server: Flow::Slow(200), to_client: Flow::Whole });
    let start = clock.now();
    stream.write_all(&[7; 50]).await.unwrap();
    stream.read_exact(&mut [0; 50]).await.unwrap();
    assert!(clock.now() - start > Duration::from_millis(150));
}
