//! Reading the body of a request, within a size and a time.
//!
//! A body that announces more than the limit is rejected before a byte is read, and any other as soon as it exceeds the
//! limit. One deadline covers the whole body, so that a client that sends a byte at a time holds the connection only so long.

use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;

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
}

/// Reads a whole body of at most `limit` bytes within `timeout`.
///
/// # Errors
/// [`BodyError`]; the rest of the body is not read.
pub async fn read_body<B>(body: B, limit: usize, timeout: Duration) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyError::TooLarge);
    }
    let body = pin!(body);
    match tokio::time::timeout(timeout, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge),
        Ok(Err(_)) => Err(BodyError::Incomplete),
        Err(_elapsed) => Err(BodyError::TooSlow),
    }
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

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn chunks(count: usize) -> impl Body<Data = Bytes, Error = Infallible> {
        StreamBody::new(stream::iter((0..count).map(|_| Ok(Frame::data(Bytes::from_static(b"1234"))))))
    }

    fn endless() -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
        stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(b"1234"))))
    }

    #[tokio::test]
    async fn reads_a_body_up_to_the_limit() {
        assert_eq!(read_body(Full::from("12345678"), 8, LONG).await.as_deref(), Ok(&b"12345678"[..]));
        assert_eq!(read_body(chunks(2), 8, LONG).await.as_deref(), Ok(&b"12341234"[..]));
        assert_eq!(read_body(Full::<Bytes>::default(), 0, LONG).await.as_deref(), Ok(&b""[..]));
    }

    #[tokio::test]
    async fn rejects_a_body_over_the_limit() {
        assert_eq!(read_body(Full::from("123456789"), 8, LONG).await, Err(BodyError::TooLarge), "announced");
        assert_eq!(read_body(chunks(3), 8, LONG).await, Err(BodyError::TooLarge));
        assert_eq!(read_body(StreamBody::new(endless()), 8, LONG).await, Err(BodyError::TooLarge));
    }

    #[tokio::test]
    async fn rejects_a_body_that_is_late_or_breaks_off() {
        let first = stream::iter([Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"1")))]);
        let stalled = StreamBody::new(first.chain(stream::pending()));
        assert_eq!(read_body(stalled, 8, Duration::from_millis(10)).await, Err(BodyError::TooSlow));
        let broken = stream::iter([Err::<Frame<Bytes>, _>(io::Error::from(io::ErrorKind::ConnectionReset))]);
        assert_eq!(read_body(StreamBody::new(broken), 8, LONG).await, Err(BodyError::Incomplete));
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
