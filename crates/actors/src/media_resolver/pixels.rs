//! Images that no engine would open.

use prompt::ChatRequest;

use super::{Error, Fault, MediaResolver, Resolved};

impl MediaResolver {
    /// Refuses images of more pixels than engines open: a header says so at no cost, and an engine would have to be
    /// trusted to look at it first.
    ///
    /// # Errors
    /// `Item` is the client's to mend.
    pub fn check_sizes(&self, request: &ChatRequest, resolved: &Resolved) -> Result<(), Error> {
        let pixels_max = self.config.pixels_max;
        for fact in &resolved.facts {
            let Some(size) = fact.size else { continue };
            if u64::from(size.width) * u64::from(size.height) > pixels_max {
                let param = request.media().get(fact.index).map(|part| part.param()).unwrap_or_default();
                let fault = Fault::TooManyPixels { width: size.width, height: size.height, pixels_max };
                return Err(Error::Item { index: fact.index, param, fault });
            }
        }
        Ok(())
    }
}
