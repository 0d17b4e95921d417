//! How one of two agents that speak for an engine makes sure that the other goes on.

use std::time::Duration;

use identity::Incarnation;
use ports::Bus;
use ports::bus::Message;
use wire::sync::{Refusal, Request, Response};

/// How long the other may take.
const DEADLINE: Duration = Duration::from_secs(1);

/// Has whoever else speaks for a rank go on as a later life than one's own, as replicas never go back; answers that life, none
/// where nobody is heard in time.
pub(crate) async fn successor(
    bus: &dyn Bus,
    subject: String,
    own: impl Fn() -> Incarnation,
) -> Option<Incarnation> {
    let payload = Request::Succeed { silent: own() }.encode().ok()?;
    let question = Message { subject, payload, ..Message::default() };
    let answer = bus.request(question, DEADLINE).await.ok()?;
    let Ok(Response::Refused(Refusal::Incarnation { present })) = Response::decode(&answer.payload) else {
        return None;
    };
    (present > own()).then_some(present)
}
