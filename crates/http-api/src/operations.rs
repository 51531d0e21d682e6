//! The operations of the API, by their endpoints.

use http_server::{body::Payload, problem::Answer};
use vvm::processor::LogName;

use crate::{
    batch, commands,
    context::{ApiContext, ApiRequest},
    document_reads, document_writes, logs, numbers,
    route::ApiOperation as Op,
};

/// Does a request on this node.
pub(crate) async fn run(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    payload: &mut Payload<'_>,
) -> Answer {
    match request.operation {
        Op::Command(name) => commands::run(api, request, name, payload).await,
        Op::CommandBatch => batch::run(api, request, payload).await,
        Op::CreateDoc(name) => document_writes::create(api, request, name, payload).await,
        Op::ChangeDoc(name, id) => document_writes::change(api, request, name, *id, payload).await,
        Op::DeactivateDoc(name, id) => {
            document_writes::deactivate(api, request, name, *id, payload).await
        }
        Op::ReadDoc(name, id) => document_reads::read_doc(api, request, name, *id).await,
        Op::ReadDocs => document_reads::read_docs(api, request).await,
        Op::ListDocs(name) => document_reads::list_docs(api, request, name).await,
        Op::Log => logs::read(api, request, LogName::Workspace(request.ws)).await,
        Op::PartitionLog => logs::read(api, request, LogName::Partition).await,
        Op::ListSeries => numbers::list_series(api, request).await,
        Op::ReadSeries(id) => numbers::read_series(api, request, id).await,
        Op::DrawNumbers(id) => numbers::draw(api, request, id, payload).await,
        Op::PeekNumber(id) => numbers::peek(api, request, id).await,
        Op::ListGaps(id) => numbers::list_gaps(api, request, id).await,
    }
}
