//! The one list of all scenarios. What stands here runs on every store, by name.

/// Runs the whole suite on a store: one `#[test]` for each scenario, in a module for each group.
///
/// The expression makes a [`Bed`](crate::Bed); it is evaluated for each test.
#[macro_export]
macro_rules! conformance {
    ($bed:expr) => {
        fn bed() -> impl $crate::Bed {
            $bed
        }

        /// Not a test: the part that other processes play when a scenario starts this binary again.
        #[test]
        fn child_process() {
            $crate::child::run_if_child(bed());
        }

        /// Random sequences of public calls; see `leasehold_testkit::fuzz`.
        #[test]
        fn fuzz() {
            $crate::fuzz::run(bed());
        }

        $crate::one_test_each! {
            exclusion {
                a_counter_stays_exact_over_many_clients
                a_counter_stays_exact_over_the_tasks_of_one_client
                claims_of_all_orders_and_kinds_exclude_each_other
                a_busy_lock_is_none_and_leaves_nothing_behind
                a_timed_try_takes_about_its_time_and_leaves_nothing_behind
                a_timed_try_gets_a_lock_that_is_freed_in_time
                a_wait_of_zero_is_one_honest_try
                different_names_do_not_exclude_each_other
                a_dropped_guard_releases
                a_try_right_after_a_drop_gets_in
            }
            order {
                five_hundred_waiters_of_many_clients_enter_in_the_order_they_came
                five_hundred_waiters_of_one_client_enter_in_the_order_they_came
                waiters_that_gave_up_are_skipped_at_the_store
                waiters_that_gave_up_are_skipped_in_the_local_queue
                short_wait_churn_leaves_nothing_behind
                one_that_queues_goes_before_one_that_barges
                a_spinning_claim_gets_in_and_waits_nowhere
                those_that_barge_all_get_in
                another_client_gets_in_though_a_local_queue_never_empties
            }
            read_write {
                readers_share_and_writers_are_alone
                readers_hold_together
                tries_at_once_by_readers_of_one_client_all_get_in
                a_try_to_read_beside_a_try_to_write_gets_in
                readers_get_in_when_the_writer_before_them_gave_up
                a_writer_waits_for_the_longest_reader
                a_writer_waits_for_the_longest_reader_of_its_own_client
                a_queued_writer_holds_back_later_readers
                a_writer_of_another_client_gets_in_though_readers_keep_coming
                a_downgrade_keeps_its_place_and_lets_readers_in
                a_downgrade_does_not_let_later_readers_pass_a_queued_writer
                a_reader_joins_those_of_its_client_while_another_client_reads
                a_writer_after_a_downgraded_one_is_alone_again
                a_downgrade_dropped_after_any_poll_leaves_the_next_writer_alone
                a_try_to_read_beside_a_reader_of_its_client_always_answers
                asking_for_write_while_reading_is_an_error_not_a_deadlock
                a_mutex_and_a_write_lock_of_one_name_exclude_each_other
            }
            semaphore {
                there_are_never_more_permits_out_than_the_limit
                permits_are_held_together_up_to_the_limit
                a_claim_for_many_is_not_starved_by_claims_for_one
                raising_the_limit_wakes_those_it_lets_in
                lowering_the_limit_takes_nothing_away
                the_limit_does_not_go_below_what_somebody_waits_for
                a_mismatched_limit_is_refused
                zero_permits_and_more_than_the_limit_are_invalid
                dropped_guards_and_cancelled_claims_give_permits_back
                a_mutex_and_permits_of_one_name_exclude_each_other
            }
            tokens {
                tokens_rise_on_every_kind_of_grant
                tokens_rise_after_every_kind_of_loss
                tokens_rise_through_thousands_of_local_hand_overs
                a_re_entry_has_the_same_token
                a_fence_refuses_a_late_holder
                a_writer_has_a_higher_token_than_the_readers_before_it
            }
            loss {
                an_expired_lease_hands_over_and_a_late_release_harms_nobody
                a_fixed_lease_ends_by_itself
                a_fixed_lease_starts_when_the_lock_is_got
                a_fixed_lease_that_was_waited_for_lasts_its_whole_length
                a_kept_lease_outlives_its_length
                a_waiter_keeps_its_place_for_longer_than_a_lease
                a_force_release_frees_the_lock_and_tells_the_old_holder
                a_force_release_with_another_token_is_a_mismatch
                a_force_release_tells_every_reader
                a_force_release_around_the_grant_is_never_missed
                local_waiters_get_in_after_their_clients_hold_was_taken_away
                no_loss_is_told_while_the_lock_is_held
                protect_stops_its_future_when_the_lock_is_lost
                closing_a_client_frees_all_it_holds_and_waits_for
                a_session_that_is_closed_grants_nothing
                a_silent_client_loses_its_locks_before_others_get_them
                a_waiter_whose_entry_was_deleted_from_outside_recovers
                a_holder_whose_entry_was_deleted_from_outside_is_told
            }
            requests {
                a_holder_is_told_and_decides
                a_request_stays_until_the_hold_ends
                a_request_for_a_free_lock_asks_nobody
                a_request_with_another_token_is_a_mismatch
                every_reader_is_asked_or_the_one_that_is_meant
                every_holder_of_permits_is_asked
                a_downgrade_keeps_the_request
                a_request_ends_the_local_hand_overs
                a_multi_lock_is_told_of_a_request_for_one_part
                a_watcher_sees_the_first_request
                every_answer_about_an_entry_says_whether_it_was_asked_for
            }
            cancellation {
                a_claim_dropped_after_any_poll_leaves_nothing_behind
                a_claim_dropped_around_its_grant_gives_the_lock_on
                a_cancelled_waiter_does_not_swallow_the_grant
                a_cancelled_local_waiter_does_not_swallow_the_hand_over
                aborted_tasks_leave_nothing_behind
                a_client_dropped_while_it_waits_leaves_nothing_behind
                every_operation_dropped_at_any_poll_agrees_with_the_store
            }
            reentrance {
                three_re_entries_and_two_releases_still_hold
                guards_of_one_hold_go_in_any_order
                an_inner_guard_of_a_lost_lock_says_so
                a_lock_that_is_not_reentrant_refuses_its_own_owner
                without_an_owner_every_claim_is_its_own
                another_owner_does_not_re_enter
                a_scope_carries_the_owner
                a_read_inside_ones_own_write_joins_it
                a_re_entry_does_not_wait_behind_the_queue
                a_downgrade_and_a_re_entry_as_writer_exclude_each_other
            }
            names {
                names_of_every_sort_are_locks_of_their_own
                names_that_differ_only_in_case_are_two
                an_empty_or_too_long_name_is_invalid
                namespaces_keep_names_apart
                many_names_over_one_client_leave_nothing_behind
            }
            inspection {
                holders_and_waiters_are_shown
                permits_and_their_limit_are_shown
                the_rest_of_a_lease_is_shown
                a_free_name_shows_nobody
                a_list_comes_whole_in_order_and_by_prefix
                a_watcher_sees_what_happens
                a_watcher_that_comes_later_sees_what_happens_then
                a_watcher_sees_a_lease_expire
                a_watcher_sees_only_its_prefix
            }
            multi {
                one_busy_part_rolls_the_others_back
                a_timed_multi_lock_keeps_one_budget_and_rolls_back
                a_cancelled_multi_lock_rolls_back
                ten_clients_with_overlapping_sets_never_deadlock
                a_mix_of_kinds_is_taken_together
                one_lost_part_is_told_and_the_others_are_given_back
                a_bad_part_is_invalid_and_takes_nothing
                the_same_name_twice_does_not_deadlock
                a_waiting_multi_lock_gets_in
                a_waiting_multi_lock_keeps_nothing_from_others
                a_multi_lock_gets_in_where_each_part_is_in_demand
            }
            striped {
                one_key_excludes_itself_and_no_other_stripe
                the_stripe_of_a_key_is_stable
                locking_all_stripes_excludes_every_key
                no_stripes_at_all_is_invalid
            }
            leader {
                one_leads_at_a_time_and_the_next_follows
                a_leader_that_lost_its_office_is_told
                an_observer_sees_who_leads
                a_candidate_can_withdraw
                all_that_waits_ends_with_its_client
            }
            crash {
                a_killed_holder_frees_its_lock_in_time
                a_lock_whose_holder_was_killed_can_be_taken
                a_killed_waiter_is_skipped
                a_killed_reader_does_not_block_a_writer
                a_killed_holders_permits_return
                a_lock_passes_between_processes
                a_counter_stays_exact_over_processes
                a_counter_stays_exact_while_processes_are_killed
            }
            programs {
                a_program_that_ends_has_given_its_lock_back
                a_guard_that_outlives_its_runtime_is_given_back
                a_guard_in_a_thread_local_is_given_back
                every_verb_works_without_tokio
                a_program_that_panics_has_given_its_lock_back
                a_program_that_exits_gives_back_what_it_has_closed
                a_program_that_is_interrupted_has_given_its_lock_back
                a_task_that_computes_keeps_its_lock_on_every_runtime
                a_client_outlives_the_runtime_that_made_it
                a_dropped_runtime_takes_nothing_with_it
                a_forked_child_has_no_client_and_the_parent_s_is_untouched
                a_child_that_is_forked_inside_a_runtime_waits_for_nothing
                what_loses_in_a_select_leaves_nothing_behind
                a_forked_child_does_not_keep_the_lock_of_a_dead_parent
                no_claim_is_granted_after_a_close
                a_close_waits_for_no_claim_that_is_not_polled
            }
            traits {
                the_url_is_one_of_the_stores_own
                every_promise_is_in_words
                a_lease_that_the_store_cant_keep_is_invalid
                shared_claims_and_permits_work_or_are_refused
                a_kept_lease_has_an_end_only_where_death_is_noticed_by_it
                a_closed_client_refuses
            }
        }
    };
}

/// The tests of [`conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! one_test_each {
    ($($group:ident { $($scenario:ident)* })*) => {
        $(mod $group {
            $(#[test]
            fn $scenario() {
                let name = concat!(stringify!($group), "::", stringify!($scenario));
                $crate::stage::run(super::bed(), name, $crate::conformance::$group::$scenario);
            })*
        })*
    };
}
