#![doc = include_str!("../README.md")]

pub mod bitmaps;
mod byte_budget;
pub mod dim_cache;
pub mod directory;
mod engine_feed;
pub mod fact_board;
pub mod gossip;
pub mod header_cache;
pub mod indexer;
pub mod load_board;
pub mod media_policy;
pub mod media_resolver;
pub mod name_learner;
mod normal_url;
mod peer_desk;
pub mod preprocessor;
mod published;
pub mod remote_index;
pub mod replicator;
pub mod scheduler;

pub use bitmaps::Bitmaps;
pub use byte_budget::{ByteBudget, Share, Tab};
pub use dim_cache::DimCache;
pub use directory::{DirectoryArgs, DirectoryHandle, Fleet, Pulse, Seat, Served, Worker};
pub use engine_feed::{EngineFeedArgs, EngineFeedHandle, FeedStatus, Feeds, Tally};
pub use fact_board::{FactBoardArgs, FactBoardHandle};
pub use gossip::Gossip;
pub use header_cache::HeaderCache;
pub use indexer::{HolderView, IndexShelf, IndexView, IndexerArgs, IndexerHandle};
pub use load_board::{LoadBoardArgs, LoadBoardHandle, Peers};
pub use media_policy::{HostPattern, MediaPolicy, Treatment, UrlPattern};
pub use media_resolver::MediaResolver;
pub use name_learner::{NameLearnerArgs, NameLearnerHandle, Quest, Riddle};
pub use peer_desk::{PeerDeskArgs, PeerDeskHandle};
pub use preprocessor::Preprocessor;
pub use remote_index::RemoteIndex;
pub use replicator::{CardSource, MediaListener, ReplicatorArgs, ReplicatorHandle};
pub use scheduler::{
    Account, Assignment, Balance, DeskLimits, HolderLoad, IndexSource, Ledger, NoIndex, Reservation,
    ScheduleRequest, SchedulerArgs, SchedulerHandle, Sight, Waiting,
};
