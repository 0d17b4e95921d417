#![doc = include_str!("../README.md")]

pub mod dim_cache;
pub mod directory;
pub mod load_board;
pub mod media_resolver;
pub mod preprocessor;
pub mod scheduler;

pub use dim_cache::DimCache;
pub use directory::{DirectoryArgs, DirectoryHandle, Fleet, Pulse, Seat, Served, Worker};
pub use load_board::{LoadBoardArgs, LoadBoardHandle, Peers};
pub use media_resolver::MediaResolver;
pub use preprocessor::Preprocessor;
pub use scheduler::{
    Account, Assignment, Balance, DeskLimits, HolderLoad, IndexSource, Ledger, NoIndex, Reservation,
    ScheduleRequest, SchedulerArgs, SchedulerHandle, Sight, Waiting,
};
