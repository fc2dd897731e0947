//! Reading the body of a request, within a size, a time and the host's memory.
//!
//! A body that announces more than the limit is rejected before a byte is read, and any other as soon as it exceeds the
//! limit. One deadline covers the whole body, so that a client that sends a byte at a time holds the connection only so long.
//! Each byte that arrives is charged, so bodies that are held back cost their senders' share of the budget and no more. A
//! body that does not fit fails at once. Charging what is announced instead would let a client take memory without sending
//! anything.

use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use talaria_budget::{Charge, Full};

/// The longest that a body is still read only to be thrown away.
const DISCARD_FOR: Duration = Duration::from_secs(5);

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// It is over the limit, or announces that it will be.
    TooLarge,
    /// It did not arrive within the time.
    TooSlow,
    /// The connection broke before the end.
    Incomplete,
    /// There is no memory for it now.
    Full(Full),
}

/// Reads a whole body of at most `limit` bytes within `timeout`. What is read is added to `charge`.
///
/// # Errors
/// [`BodyError`]; the rest of the body is not read.
pub async fn read_body<B>(
    body: B,
    limit: usize,
    timeout: Duration,
    charge: &mut Charge,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let announced = body.size_hint().lower();
    let Some(announced) = usize::try_from(announced).ok().filter(|bytes| *bytes <= limit) else {
        return Err(BodyError::TooLarge);
    };
    tokio::time::timeout(timeout, collect(body, announced, limit, charge))
        .await
        .unwrap_or(Err(BodyError::TooSlow))
}

/// Copies the frames into one buffer. Frames that are kept would keep the connection's buffers, which are larger than
/// what a client has to send to get one.
async fn collect<B>(body: B, announced: usize, limit: usize, charge: &mut Charge) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
{
    let mut body = pin!(body);
    // The pages of a large buffer are not in memory before something is written to them.
    let mut whole = Vec::with_capacity(announced);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(BodyError::Incomplete) };
        let Some(data) = frame.data_ref() else { continue };
        if data.len() > limit.saturating_sub(whole.len()) {
            return Err(BodyError::TooLarge);
        }
        charge.grow(data.len()).map_err(BodyError::Full)?;
        whole.extend_from_slice(data);
    }
    Ok(whole.into())
}

/// Reads up to `limit` bytes of a rejected body and throws them away, for a few seconds at most. A client that is still
/// writing when the connection closes often never reads the response.
pub async fn discard_body<B: Body<Data = Bytes>>(body: B, limit: usize) {
    let mut body = pin!(body);
    let mut left = limit;
    let discard = async {
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(size) else { return };
            left = rest;
        }
    };
    let _ = tokio::time::timeout(DISCARD_FOR, discard).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::stream::{self, Stream, StreamExt as _};
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use talaria_budget::Budget;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Reads a body with memory to spare.
    async fn read<B>(body: B, limit: usize, timeout: Duration) -> Result<Bytes, BodyError>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        read_body(body, limit, timeout, &mut Budget::unlimited().nothing()).await
    }

    fn chunks(count: usize) -> impl Body<Data = Bytes, Error = Infallible> {
        StreamBody::new(stream::iter((0..count).map(|_| Ok(Frame::data(Bytes::from_static(b"1234"))))))
    }

    fn endless() -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
        stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(b"1234"))))
    }

    #[tokio::test]
    async fn reads_a_body_up_to_the_limit() {
        assert_eq!(read(Full::from("12345678"), 8, LONG).await.as_deref(), Ok(&b"12345678"[..]));
        assert_eq!(read(chunks(2), 8, LONG).await.as_deref(), Ok(&b"12341234"[..]));
        assert_eq!(read(Full::<Bytes>::default(), 0, LONG).await.as_deref(), Ok(&b""[..]));
    }

    #[tokio::test]
    async fn rejects_a_body_over_the_limit() {
        assert_eq!(read(Full::from("123456789"), 8, LONG).await, Err(BodyError::TooLarge), "announced");
        assert_eq!(read(chunks(3), 8, LONG).await, Err(BodyError::TooLarge));
        assert_eq!(read(StreamBody::new(endless()), 8, LONG).await, Err(BodyError::TooLarge));
    }

    #[tokio::test]
    async fn rejects_a_body_that_is_late_or_breaks_off() {
        let first = stream::iter([Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"1")))]);
        let stalled = StreamBody::new(first.chain(stream::pending()));
        assert_eq!(read(stalled, 8, Duration::from_millis(10)).await, Err(BodyError::TooSlow));
        let broken = stream::iter([Err::<Frame<Bytes>, _>(io::Error::from(io::ErrorKind::ConnectionReset))]);
        assert_eq!(read(StreamBody::new(broken), 8, LONG).await, Err(BodyError::Incomplete));
    }

    #[tokio::test]
    async fn what_arrives_is_charged_until_the_reader_is_done() {
        let budget = Budget::new(10);
        let mut first = budget.nothing();
        read_body(chunks(2), 100, LONG, &mut first).await.unwrap();
        assert_eq!((first.bytes(), budget.used()), (8, 8));
        let mut second = budget.nothing();
        assert_eq!(
            read_body(chunks(1), 100, LONG, &mut second).await,
            Err(BodyError::Full(talaria_budget::Full::Host))
        );
        drop(first);
        assert_eq!(read_body(chunks(1), 100, LONG, &mut second).await.as_deref(), Ok(&b"1234"[..]));
        let announced = Full::from("123456789");
        assert_eq!(
            read_body(announced, 100, LONG, &mut second).await,
            Err(BodyError::Full(talaria_budget::Full::Host))
        );
    }

    #[tokio::test]
    async fn discards_no_more_than_the_limit() {
        let read = AtomicUsize::new(0);
        let counted = endless().inspect(|_| {
            read.fetch_add(1, Ordering::Relaxed);
        });
        discard_body(StreamBody::new(counted), 8).await;
        assert_eq!(read.into_inner(), 3, "chunks of four bytes");
    }
}
