//! The trials that find each defect.

use istorage_tck::wrong::Defect;

/// Each defect, and the trials that must fail on the defect. Together they are all trials.
pub(crate) const TABLE: &[(Defect, &[&str])] = &[
    (
        Defect::EndIncluded,
        &[
            "large::a_range_in_its_middle",
            "ttl::ttl_get_shows_the_whole_row",
            "ttl::ttl_read_keeps_to_its_range",
            "expiry::expired_rows_among_many",
            "read::the_start_is_included_and_the_end_is_not",
            "read::open_ends",
            "read::bounds_where_no_row_is",
            "read::ranges_without_rows",
            "read::the_range_of_one_row",
            "read::all_ranges_of_awkward_keys",
            "read::rows_of_many_megabytes",
        ],
    ),
    (
        Defect::OnePageOnly,
        &[
            "large::a_partition_of_100_000_rows_is_read_completely",
            "large::it_is_read_with_ttl",
            "read::rows_come_in_the_order_of_unsigned_bytes",
            "put_batch::of_1_000_rows",
            "put_batch::of_10_000_rows",
            "put_batch::many_batches_at_once",
        ],
    ),
    (Defect::EagerRead, &["large::it_is_read_lazily"]),
    (Defect::OneStreamAtATime, &["read::many_streams_at_once"]),
    (
        Defect::SignedBytes,
        &[
            "read::rows_come_in_the_order_of_unsigned_bytes",
            "read::all_ranges_of_awkward_keys",
            "read::other_partitions_do_not_bleed_into_it",
        ],
    ),
    (
        Defect::KeysJoined,
        &[
            "get::the_two_parts_of_a_key_are_not_joined",
            "read::other_partitions_do_not_bleed_into_it",
            "write_if::other_partitions_are_not_touched",
        ],
    ),
    (
        Defect::StaleReads,
        &[
            "get::a_written_row_is_there",
            "get::an_empty_clustering_key",
            "get::conditional_rows_are_seen",
            "read::written_rows_are_there_at_once",
            "put_batch::overwrites",
            "limits::orders_have_bounds",
        ],
    ),
    (
        Defect::StaleLinearizableReads,
        &[
            "expiry::an_expired_ordered_row_can_be_written_again",
            "conditional::nodes_see_each_others_writes",
            "linearizable::get_sees_every_answered_swap",
            "linearizable::read_sees_every_answered_insert",
            "linearizable::reads_never_go_back",
            "linearizable::its_own_writes_are_seen_at_once",
        ],
    ),
    (
        Defect::EmptyIsAbsent,
        &[
            "get::an_empty_value_is_not_absent",
            "get::values_of_many_sizes",
            "read::empty_values_are_rows",
            "conditional::an_empty_value_is_not_an_absent_row",
            "limits::the_longest_keys",
        ],
    ),
    (
        Defect::AbsentIsEmpty,
        &[
            "ttl::of_an_absent_row_is_none",
            "get::an_absent_row_is_none",
            "read::an_empty_partition_has_no_rows",
            "read::bounds_longer_than_any_key",
            "put_batch::of_1_row",
            "conditional::a_delete_of_an_equal_row_is_applied",
        ],
    ),
    (
        Defect::UnreadKeysDropped,
        &[
            "get::any_bytes_in_partition_keys",
            "get::a_batch_of_thousands",
            "put_batch::of_1_000_partitions",
            "ordered::of_thousands_of_rows",
        ],
    ),
    (
        Defect::SortedBatch,
        &["get::a_batch_keeps_the_order_of_its_keys", "unknown::several_operations_at_once"],
    ),
    (
        Defect::WritesLost,
        &[
            "large::streams_of_it_may_be_dropped",
            "ttl::of_a_row_that_stays",
            "get::the_other_node_sees_it",
            "get::any_bytes_in_clustering_keys",
            "get::any_bytes_in_values",
            "read::conditional_rows_are_seen",
            "ordered::a_row_is_written",
            "conditional::an_insert_of_an_absent_row_is_applied",
            "conditional::a_swap_of_an_equal_row_is_applied",
            "write_if::inserts_swaps_and_deletes_together",
            "atomic::several_partitions_and_kinds_together",
            "unknown::not_applied_and_the_answer_lost",
            "unknown::a_resend_is_not_answered_by_the_first_write",
            "unknown::plain_writes_can_be_repeated",
        ],
    ),
    (
        Defect::EmptyBatchRefused,
        &[
            "get::a_batch_of_nothing",
            "put_batch::of_0_rows",
            "ordered::of_nothing",
            "write_if::of_nothing_is_applied",
            "atomic::of_nothing_is_applied",
        ],
    ),
    (
        Defect::LargeBatchRefused,
        &[
            "large::its_end",
            "get::a_batch_of_large_rows",
            "put_batch::of_26_rows",
            "put_batch::of_10_000_rows",
            "put_batch::of_large_rows",
        ],
    ),
    (
        Defect::LargeBatchCut,
        &[
            "large::its_end",
            "get::a_batch_of_large_rows",
            "put_batch::of_26_rows",
            "put_batch::of_100_rows",
        ],
    ),
    (
        Defect::UnprocessedDropped,
        &[
            "get::a_batch_keeps_the_order_of_its_keys",
            "put_batch::of_25_rows",
            "put_batch::the_last_of_many_writes_stays",
        ],
    ),
    (
        Defect::FirstOfBatchCounts,
        &["put_batch::one_key_twice_the_last_counts", "atomic::rows_named_twice"],
    ),
    (
        Defect::OrderIgnored,
        &[
            "expiry::a_higher_order_ends_it",
            "ordered::every_order_of_arrival",
            "ordered::from_two_nodes_with_clocks_5_s_apart",
            "ordered::far_orders",
            "ordered::an_equal_order_with_equal_bytes",
            "ordered::one_key_twice_in_a_batch_the_highest_counts",
            "ordered::a_superseded_row_holds_nothing_else_back",
            "ordered::racing_writers_leave_the_highest",
            "ordered::linearizable_reads_see_it",
        ],
    ),
    (Defect::OrderedOneByOne, &["dropped::ordered_rows_of_a_partition_are_all_or_nothing"]),
    (Defect::EqualOrderIgnored, &["expiry::an_ordered_row_that_is_sent_again_lives_longer"]),
    (
        Defect::GetThenPut,
        &[
            "races::of_inserts_one_wins",
            "races::of_swaps_one_wins",
            "races::a_counter_raised_by_swaps_ends_exact",
            "races::writes_that_share_a_row_exclude_each_other",
            "dropped::a_conditional_write_is_all_or_nothing",
        ],
    ),
    (
        Defect::PartialWriteIf,
        &[
            "write_if::the_first_operation_fails",
            "write_if::the_middle_operation_fails",
            "write_if::the_last_operation_fails",
            "atomic::batches_that_cross_exclude_each_other",
            "atomic::batches_at_once_are_each_whole",
            "races::writes_that_share_a_row_exclude_each_other",
        ],
    ),
    (
        Defect::FirstConflictOnly,
        &[
            "expiry::of_an_atomic_write",
            "write_if::two_conflicts_are_both_told",
            "write_if::every_operation_fails",
            "atomic::conflicts_of_several_partitions",
        ],
    ),
    (Defect::SortedConflicts, &["write_if::conflicts_come_in_the_order_of_operations"]),
    (
        Defect::ConflictsEmpty,
        &[
            "conditional::an_insert_of_a_row_that_exists_is_not",
            "conditional::a_swap_of_a_different_row_is_not",
            "conditional::any_bytes_in_keys",
            "conditional::a_long_chain_of_swaps",
            "unknown::applied_and_the_answer_lost",
            "unknown::landing_before_the_first_resend",
            "unknown::the_answer_comes_after_the_deadline",
            "unknown::lost_to_somebody_else",
        ],
    ),
    (
        Defect::SwapInserts,
        &[
            "expiry::swap_and_delete_see_an_expired_row_as_absent",
            "conditional::a_swap_of_an_absent_row_is_not",
            "conditional::a_delete_of_an_absent_row_is_not",
        ],
    ),
    (
        Defect::SwapToSameRefused,
        &["expiry::a_renewed_row_lives_on", "conditional::a_swap_to_the_same_bytes_is_applied"],
    ),
    (
        Defect::InsertOfSameApplied,
        &[
            "conditional::an_insert_of_equal_bytes_is_not_either",
            "write_if::the_empty_clustering_key_among_others",
            "unknown::landing_after_a_first_read_found_nothing",
            "unknown::several_attempts_open_at_once",
        ],
    ),
    (
        Defect::DeleteUnconditional,
        &[
            "conditional::a_delete_of_a_different_row_is_not",
            "conditional::a_lost_write_changes_nothing",
            "write_if::a_delete_fails",
        ],
    ),
    (
        Defect::DeletedStaysTaken,
        &[
            "expiry::a_row_once_written_without_ttl_expires",
            "expiry::a_delete_ends_it",
            "conditional::a_deleted_row_can_be_inserted_again",
        ],
    ),
    (
        Defect::PrefixesCompared,
        &[
            "conditional::similar_values_are_different",
            "conditional::large_values_are_compared_whole",
        ],
    ),
    (
        Defect::BlindRetry,
        &[
            "conditional::a_long_chain_of_swaps",
            "races::of_inserts_one_wins",
            "races::of_deletes_one_wins",
            "races::of_a_swap_and_a_delete_one_wins",
            "races::a_counter_raised_by_swaps_ends_exact",
            "races::rows_of_one_partition_do_not_disturb_each_other",
        ],
    ),
    (Defect::LateAnswerRefused, &["deadlines::answers_at_a_tight_deadline_are_true"]),
    (Defect::OutcomeNeverKnown, &["deadlines::answers_at_a_tight_deadline_are_true"]),
    (
        Defect::AtomicPartial,
        &[
            "atomic::a_failed_condition_stops_all_partitions",
            "dropped::an_atomic_write_is_all_or_nothing",
        ],
    ),
    (Defect::SupersededFails, &["atomic::a_superseded_row_fails_nothing"]),
    (Defect::AtomicNotOffered, &["atomic::where_it_is_not_offered_it_is_invalid"]),
    (Defect::EarlyExpiry, &["expiry::a_row_is_never_gone_early", "expiry::short_lives"]),
    (Defect::LateExpiry, &["expiry::a_row_is_gone_in_time", "expiry::short_lives"]),
    (Defect::GetSeesExpired, &["expiry::all_calls_agree_on_the_moment"]),
    (
        Defect::InsertSeesExpired,
        &[
            "expiry::an_expired_row_can_be_inserted_again",
            "expiry::conflicts_show_expired_rows_as_absent",
            "expiry::one_of_many_takes_an_expired_row_over",
        ],
    ),
    (Defect::SwapKeepsTtl, &["ttl::it_follows_swaps", "expiry::a_swap_without_ttl_ends_it"]),
    (Defect::SwapForgetsTtl, &["expiry::operations_of_one_write_have_ttls_of_their_own"]),
    (
        Defect::TtlNotTold,
        &[
            "ttl::of_a_row_that_expires",
            "ttl::of_ordered_rows",
            "ttl::ttl_read_of_rows_that_stay_and_rows_that_expire",
        ],
    ),
    (Defect::TtlStandsStill, &["ttl::it_counts_down"]),
    (Defect::TtlWraps, &["ttl::the_longest"]),
    (Defect::ExpiryByNode, &["expiry::nodes_with_different_clocks_agree"]),
    (
        Defect::LimitsOverstated,
        &[
            "write_if::up_to_the_limit_of_rows",
            "write_if::up_to_the_limit_of_bytes",
            "atomic::up_to_the_limit_of_rows",
            "limits::the_largest_value",
            "limits::the_longest_keys_with_the_largest_value",
            "limits::of_ordered_rows",
            "limits::of_conditional_rows",
        ],
    ),
    (
        Defect::LimitsIgnored,
        &[
            "write_if::a_row_named_twice_is_invalid",
            "write_if::beyond_the_limit_of_rows",
            "write_if::beyond_the_limit_of_bytes",
            "atomic::beyond_the_limit_of_rows",
            "atomic::beyond_the_limit_of_bytes",
            "limits::a_value_beyond_the_largest_is_invalid",
            "limits::keys_beyond_the_longest_are_invalid",
            "limits::an_empty_partition_key_is_invalid",
            "limits::an_invalid_row_stops_the_others_of_its_batch",
            "limits::a_ttl_of_zero_or_beyond_the_longest_is_invalid",
        ],
    ),
    (Defect::LimitsTooSmall, &["capabilities::they_suffice_for_a_node"]),
    (Defect::CapabilitiesChange, &["capabilities::they_do_not_change"]),
    (Defect::ServerTimeStandsStill, &["capabilities::the_server_time_is_plausible"]),
    (Defect::DeadlineIgnored, &["deadlines::a_passed_deadline_sends_nothing"]),
    (Defect::DroppedCallsLeak, &["dropped::the_storage_works_after_many_dropped_calls"]),
    (
        Defect::CloseIgnored,
        &[
            "lifecycle::a_closed_storage_answers_closed",
            "lifecycle::a_closed_storage_ends_its_streams",
        ],
    ),
    (Defect::CloseClosesAll, &["lifecycle::closing_one_storage_leaves_the_others_open"]),
    (Defect::ClosedThoughApplied, &["lifecycle::calls_under_way_are_answered_when_it_is_closed"]),
    (
        Defect::CreateOnce,
        &["lifecycle::a_keyspace_is_created_once", "lifecycle::several_nodes_create_one_at_once"],
    ),
    (Defect::OpenCreates, &["lifecycle::a_keyspace_that_was_not_created_is_none"]),
    (
        Defect::KeyspacesShared,
        &[
            "lifecycle::a_keyspace_that_was_not_created_is_none",
            "lifecycle::keyspaces_do_not_share_rows",
        ],
    ),
    (Defect::DropIgnored, &["lifecycle::a_dropped_keyspace_is_gone_with_its_rows"]),
    (Defect::LongNamesRefused, &["lifecycle::the_longest_name"]),
    (Defect::DriverCloseIgnored, &["lifecycle::a_closed_driver_answers_closed"]),
];
