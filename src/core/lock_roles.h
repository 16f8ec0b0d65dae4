/* Locks in the signatures of functions, so that clang refuses a call without its lock (-Wthread-safety).

   Nouns. A *role* is one of the four kinds of lock that the core has: `lock`, `grow` and `asking` of a device, `setup` of
   the core. A function that needs one says so behind its parameters, as SG_REQUIRES(lock); a field that one
   guards says SG_GUARDED_BY(lock). The name of such a function ends in the role: _locked, _growing, _asking or
   _in_setup. One that needs several is called by the innermost, `lock` before `asking` before `grow` before `setup`.

   Why roles, and not the locks themselves: clang compares expressions. To it `plan->device->lock` and `device->lock` are
   two locks although `device` is `plan->device`, and a region does not name its device at all. A role is one name for all
   devices.

   Limits. Which device's lock is held is seen at run time only, by SG_ASSERT_HELD() in builds with assertions. These
   can't be said, and are left to it:

      - the locks of all devices at once (sg_core_fork_prepare());
      - `grow`, where a replay takes it in a loop over its steps (sg_replay_grow_lock());
      - what is read through a pointer to a guarded field;
      - looks without a lock that say so (SG_UNCHECKED_LOCKS).

   For example: sg_pending_settle_locked() is declared with SG_REQUIRES(lock). A call of it after sg_device_unlock() ends
   the build by clang: "calling function 'sg_pending_settle_locked' requires holding lock 'sg_under_lock' exclusively".
   A call for device 0 with the lock of device 1 compiles, and the assertion in it ends the test.
   tests/tree/wrong_locks.py makes wrong calls for each role. */
#ifndef SG_LOCK_ROLES_H
#define SG_LOCK_ROLES_H

#ifdef __clang__
#define SG_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define SG_THREAD_SAFETY(attribute)
#endif

#define SG_REQUIRES(role) SG_THREAD_SAFETY(requires_capability(sg_under_##role))
#define SG_GUARDED_BY(role) SG_THREAD_SAFETY(guarded_by(sg_under_##role))
/* A function that takes the lock and returns with it, one that gives it back, and one that takes it if it returns
   true. */
#define SG_ACQUIRES(role) SG_THREAD_SAFETY(acquire_capability(sg_under_##role))
#define SG_RELEASES(role) SG_THREAD_SAFETY(release_capability(sg_under_##role))
#define SG_TRY_ACQUIRES(role) SG_THREAD_SAFETY(try_acquire_capability(true, sg_under_##role))
/* A function into which clang does not look: it gets its locks in a way that can't be said, or looks without one. Callers
   are held to its signature all the same. */
#define SG_UNCHECKED_LOCKS SG_THREAD_SAFETY(no_thread_safety_analysis)

/* Names only: there is no such object. */
struct SG_THREAD_SAFETY(capability("lock")) sg_lock_role {
    char none;
};
extern struct sg_lock_role sg_under_lock, sg_under_grow, sg_under_asking, sg_under_setup;

#endif
