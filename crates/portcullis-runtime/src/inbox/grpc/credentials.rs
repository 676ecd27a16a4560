//! Who is on the other side: tokens, certificates and keys.

use std::fmt;

use subtle::ConstantTimeEq;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::Identity;
use tonic::{Request, Status};

use super::GrpcError;
use crate::inbox::remote::TlsIdentity;

const HEADER: &str = "authorization";
const SCHEME: &str = "Bearer ";

/// A secret that both sides know. It is not printed.
#[derive(Clone)]
pub struct BearerToken(MetadataValue<Ascii>);

impl BearerToken {
    /// Of visible ASCII characters, at least one.
    pub fn new(token: &str) -> Result<Self, GrpcError> {
        let visible = token.bytes().all(|byte| byte.is_ascii_graphic());
        let value = format!("{SCHEME}{token}").try_into().ok();
        let value: Option<MetadataValue<Ascii>> = value.filter(|_| visible && !token.is_empty());
        let Some(mut value) = value else {
            let why = "a token has visible ASCII characters only, and at least one";
            return Err(GrpcError::setting("token", why));
        };
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// Takes as long for a token that is nearly right as for one that is wrong from the start.
    fn is_in(&self, metadata: &MetadataMap) -> bool {
        let given = metadata.get(HEADER).map(MetadataValue::as_bytes);
        given.is_some_and(|given| given.ct_eq(self.0.as_bytes()).into())
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

impl TlsIdentity {
    pub(super) fn to_tonic(&self) -> Identity {
        Identity::from_pem(&self.certificate, &self.key)
    }
}

/// Shows the token with every call.
#[derive(Debug, Clone)]
pub(super) struct ShowToken(pub(super) Option<BearerToken>);

impl Interceptor for ShowToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(BearerToken(value)) = &self.0 {
            request.metadata_mut().insert(HEADER, value.clone());
        }
        Ok(request)
    }
}

/// Lets no call pass without the token, if there is one.
#[derive(Debug, Clone)]
pub(super) struct CheckToken(pub(super) Option<BearerToken>);

impl Interceptor for CheckToken {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        match &self.0 {
            Some(token) if !token.is_in(request.metadata()) => Err(Status::unauthenticated(
                "the token is missing or not the sidecar's",
            )),
            _ => Ok(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_visible_ascii_and_not_printed() {
        for bad in ["", "two words", "line\nbreak", "schlüssel"] {
            let error = BearerToken::new(bad).unwrap_err().to_string();
            assert!(error.starts_with("token: "), "{error}");
        }
        let token = BearerToken::new("s3cret").unwrap();
        assert!(!format!("{token:?}").contains("s3cret"));
        let identity = TlsIdentity {
            certificate: "public".to_owned(),
            key: "s3cret".to_owned(),
        };
        assert!(!format!("{identity:?}").contains("s3cret"));
    }

    #[test]
    fn only_the_token_itself_passes() {
        let right = BearerToken::new("right").unwrap();
        for (shown, passes) in [("right", true), ("righ", false), ("wrong", false)] {
            let shown = BearerToken::new(shown).unwrap();
            let request = ShowToken(Some(shown)).call(Request::new(())).unwrap();
            let checked = CheckToken(Some(right.clone())).call(request);
            assert_eq!(checked.is_ok(), passes);
        }
        let nothing = CheckToken(Some(right)).call(Request::new(()));
        assert_eq!(nothing.unwrap_err().code(), tonic::Code::Unauthenticated);
        assert!(CheckToken(None).call(Request::new(())).is_ok());
    }
}
