/* SPDX-License-Identifier: Apache-2.0
 * The gang commit (docs/adr/0038): one job of several ranks, of which NR move at once.  Source S_i and target T_i have rank i, U_j is
 * a bystander: a rank that stays where it is and gets new communicators.  T_0 is the lead.  C is the coordinator.  Each is on a node
 * of its own.  One migration.  It begins when all ranks are held at step n (gather.pml).  The old epoch has the sources, the old
 * communicators and incarnation n, or n+2 after a return.  The new epoch has the targets, the new communicators and n+1.
 *
 * As in switch.pml every line of `do` is one atomic step of one party.  It depends only on what that party has recorded, on its
 * instance, and on statements that it received.  So a crash between two steps is the interleaving in which that party does nothing
 * for a while.  What a restart changes is a step of its own: a target without READY or COMMITTED gives up.  C keeps nothing but its
 * record and its leases.
 *
 * Messages.  A sent bit may be delivered at any later time, any number of times, or never.  A statement about a record that is never
 * revoked is read off the record, or off a bit that remembers it once the record has been succeeded.  A lease ends at the holder no
 * later than at the grantor: one bit.
 *
 * Liveness.  At one moment chosen by the checker the faults end (stable=1).  All in flight is lost; C is up or away for ever; nodes
 * that are not lost reach each other.  Then each step can happen a bounded number of times, and "eventually" needs no fairness.
 *
 * The end of an instance.  FENCED, and RELINQUISHED after a promise, are recorded, then the instance ends, then that is stated.  Here
 * this is one step.  Between record and statement a party does nothing, and nobody knows of the record: to the others it is as if the
 * party were silent in the state before.
 *
 * The model is wider than the machines in three points.  It begins when the ranks are held, so it does not show that none is before
 * all targets have leases.  A target gives up at any time before it promises, also where SW-7 keeps a time-out from asking for that.
 * An instance that has finished is one that is past its gate: it is not lost, and what it states stays true.
 *
 * Faults.  At most MAXFAULT of: a node is lost, the instance of a target dies.  Apart from these a target's resume into its gate may
 * fail once: that is no fault of a node, and must never cost work.
 *
 * -DNR=1 -DNU=0 is the form of one rank. -DPROP_WHOLE and -DPROP_ALONE are two properties of switch.pml that it lacks.
 *
 * -DV_xxx: deliberately broken variants, each must be caught.  -DCOMMIT_WITHOUT_LEASE and -DREADY_BEFORE_RUNS are weaker rules that hold,
 * too.
 */
#ifndef MAXFAULT
#define MAXFAULT 1
#endif
#ifndef NR
#define NR 2              /* ranks that move: 1 or 2 */
#endif
#ifndef NU
#define NU 1              /* bystanders: 0, 1 or 2 */
#endif

/* coordinator */
#define CP 0  /* BEGUN */
#define CG 1  /* GRANTED(n+1) */
#define CK 2  /* KEPT(n+1): n+2 will never be granted */
#define C2 3  /* GRANTED(n+2): the return */
#define CA 4  /* CLOSED(source) */
#define CF 5  /* CLOSED(target) */
#define CR 6  /* RESTORED: from the gang's image, once all instances are fenced */
#define CB 7  /* ABORTED */
/* source */
#define S0 0  /* held at n, no record */
#define SB 1  /* BARRIER */
#define SR 2  /* RESUMED: runs in the old epoch */
#define SN 3  /* NEVER: left before BARRIER, runs in the old epoch */
#define SX 4  /* RELEASED */
#define SF 5  /* FENCED: stopped for the restore */
#define SW 6  /* HELD_STILL: BARRIER, refuses to release (where there is no bystander) */
/* target */
#define T0 0
#define TV 1  /* VERIFIED (volatile) */
#define TR 2  /* READY(n+1): gives up or runs on others' word only; every target but the lead */
#define TC 3  /* COMMITTED(n+1): the lead */
#define TN 4  /* RELINQUISHED without READY or COMMITTED: a veto, since no GO can follow */
#define TQ 5  /* RELINQUISHED after READY or COMMITTED: no veto */
/* bystander */
#define U0 0  /* held at n, nothing stated */
#define UH 1  /* HELD, new communicators ready: leaves n on others' word only */
#define US 2  /* HELD_STILL: refuses GO */
#define UL 3  /* LIFTED: takes GO again, and answers no WITHDRAW */
#define UG 4  /* GONE: has swapped, runs in the new epoch */
#define UO 5  /* OLD: runs in the old epoch, refuses GO */
#define UF 6  /* FENCED */

byte c, s[2], t[2], u[2];
bit wd;                            /* WITHDRAW(n+1) was sent */
bit fin[2];                        /* the final manifest of rank i was sent */
bit held[2], ready, resumed, go;   /* HELD of U_j, READY of T_1, RUNS of T_1 (it is in its gate): to T_0.  GO: from T_0 */
bit memT[2], gate[2], onT[2];      /* T_i's instance: has the image; resumed into its gate; past its gate */
bit l[2], own[2];                  /* C's lease to T_i; T_i runs as owner */
bit oldc[2];                       /* U_j's old communicators live */
bit left[2], gone[2], back, kept, fwd; /* what was once recorded: NEVER, GONE, ABORTED or GRANTED(n+2), KEPT, CLOSED(target) */
bit sOld, uOld;                    /* a source, a bystander has passed n in the old epoch */
bit lostS[2], lostT[2], lostU[2], rf;
byte nf;
bit stable, cup, onR;
#if defined(REACH) || NU==0
bit ranT[2];                       /* T_i has passed its gate */
#define RAN(i) ranT[i]=1
#else
#define RAN(i) skip
#endif
#ifdef REACH
bit was2;
#define HIST(x) x
#else
#define HIST(x) skip
#endif
#ifdef V_COMMIT_NOT_DURABLE
bit said;
#define COMMIT_STATED (said || t[0]==TC || t[0]==TQ)
#define LEAD_DECIDES (t[0]==TC || (t[0]==TV && said))
#else
#define COMMIT_STATED (t[0]==TC || t[0]==TQ)
#define LEAD_DECIDES (t[0]==TC)
#endif
#ifdef V_C_FORGETS
bit forgot;
#endif

#if NU==0
#define allU(p) 1
#define anyU(p) 0
#elif NU>1
#define allU(p) (p(0) && p(1))
#define anyU(p) (p(0) || p(1))
#else
#define allU(p) (p(0))
#define anyU(p) (p(0))
#endif
#if NR==1
#define both(p) (p(0))
#define either(p) (p(0))
#else
#define both(p) (p(0) && p(1))
#define either(p) (p(0) || p(1))
#endif

/* what a party can know of another: in flight before `stable`, and after it from those that are there */
#define REACHC (!stable || cup)
#define FROM(lost) (!stable || !lost)
#define KNOWN_NEVER(i) (left[i] && FROM(lostS[i]))
#define KNOWN_TN(i) (t[i]==TN && FROM(lostT[i]))
#define KNOWN_GONE(j) (gone[j] && FROM(lostU[j]))
#ifdef V_RELINQUISHED_IS_VETO  /* SW-14 rank by rank: the source of a target that died goes on from the barrier */
#define VETO (either(KNOWN_NEVER) || either(KNOWN_TN) || (t[0]==TQ && FROM(lostT[0])) || (t[1]==TQ && FROM(lostT[1])))
#else
#define VETO (either(KNOWN_NEVER) || either(KNOWN_TN))
#endif
#define TO_OLD (c==CA || c==CB || c==C2)
#define BACK (VETO || (back && !stable) || (TO_OLD && cup && stable))
#define RESTORE (c==CR && REACHC)

#define LOST_S(i) lostS[i]
#define LOST_U(j) lostU[j]
#define GONE_U(j) gone[j]
#define IS_US(j) (u[j]==US)
#define IS_UG(j) (u[j]==UG)
#define IS_UO(j) (u[j]==UO)
#define HELD_U(j) held[j]
#define NO_GO(j) (u[j]==US || u[j]==UO)
#define DAMAGED(i) (lostT[i] || t[i]==TN || t[i]==TQ || (!memT[i] && t[i]!=T0))
#define TDAM either(DAMAGED)
#define RELEASED(i) (s[i]==SX)
#define IS_SW(i) (s[i]==SW)
#define STILL (anyU(IS_US) || either(IS_SW))
#define RAN_T(i) (ranT[i] && FROM(lostT[i]))
#define RAN_EVER(i) ranT[i]
#define RESUMED_S(i) (s[i]==SR || s[i]==SN)

#if NR==1
#define LEASE_1
#else
#define LEASE_1 LEASE(1)
#endif

/* in the stable phase a lease that can be renewed is renewed */
#define RENEW(i) (cup && (c==CG || c==CK) && !TDAM && (c==CK || !STILL))

/* returning needs: no target has a lease, each bystander refuses GO, the sources have answered lately */
#ifdef V_LEASE_NOT_WAITED
#define NO_LEASE 1
#else
#define LEASE_OF(i) l[i]
#define NO_LEASE (!either(LEASE_OF))
#endif
#ifdef V_RETURN_WITHOUT_WITHDRAW
#define WITHDRAWN 1
#else
#ifdef V_WITHDRAW_ONE
#define WITHDRAWN anyU(NO_GO)
#elif NU==0
#define NO_RELEASE(i) (s[i]==SW || s[i]==SR || s[i]==SN)
#define WITHDRAWN both(NO_RELEASE)
#else
#define WITHDRAWN allU(NO_GO)
#endif
#endif
#ifdef V_STILL_FOREVER   /* HELD_STILL is never lifted */
#define LIFTS 0
#define NO_SET_LEFT (anyU(IS_US) && (either(LOST_S) || anyU(GONE_U)))
#else
#define LIFTS 1
#define NO_SET_LEFT 0
#endif
#ifdef V_CLOSED_AT_COMMITTED   /* SW-15 rank by rank: CLOSED(target) once COMMITTED is known */
#define MAY_CLOSE COMMIT_STATED
#elif NU==0
#define MAY_CLOSE (both(RELEASED) || (both(RAN_T) && either(LOST_S)))
#else
#define MAY_CLOSE (allU(KNOWN_GONE) || both(RELEASED))
#endif
/* the old set is void for good */
#if NU==0
#define NO_RETURN either(RELEASED)
#else
#define NO_RETURN anyU(KNOWN_GONE)
#endif
#ifdef V_WITHDRAW_DROPPED      /* C asks some, finds the targets well, and asks no more */
#define CARRIED_ON 0
#else
#define CARRIED_ON STILL
#endif

/* C restores only where neither set can go on */
#define NEEDS_IMAGE ((c!=CP && anyU(LOST_U)) || ((c==CG || c==CK || c==CF) && NO_RETURN && TDAM) || (TO_OLD && either(LOST_S)) \
  || (c==CK && TDAM) || (c==CG && TDAM && either(LOST_S)) || (c==CG && NO_SET_LEFT))

#define COORD \
:: d_step { c==CP && !stable -> c=CG } \
:: d_step { c==CP && REACHC -> c=CB; back=1 } \
:: d_step { c==CG && REACHC && VETO -> c=CA; back=1 } \
:: d_step { c==CG && REACHC && !wd && (!stable || TDAM || CARRIED_ON) -> wd=1 }                          /* WITHDRAW, to each bystander */ \
:: d_step { c==CG && REACHC && NO_LEASE && WITHDRAWN && (!stable || !either(LOST_S)) -> c=C2; back=1; HIST(was2=1) } \
:: d_step { c==CG && REACHC && LIFTS && STILL && (NO_RETURN || either(LOST_S)) -> c=CK; kept=1 } \
:: d_step { (c==CG || c==CK) && REACHC && MAY_CLOSE -> c=CF; fwd=1 } \
:: d_step { c==C2 && REACHC && both(RESUMED_S) -> c=CA } \
:: d_step { c!=CR && REACHC && NEEDS_IMAGE -> assert(RESTORE_OK); c=CR } \
:: d_step { c==CR && REACHC && !onR && FENCED -> onR=1 } \
LEASE(0) LEASE_1

#define LEASE(i) \
:: d_step { (c==CG || c==CK) && !l[i] && !own[i] && !lostT[i] && (t[i]==TV || t[i]==TR || t[i]==TC) && (!stable || RENEW(i)) -> l[i]=1 } \
:: d_step { l[i] && (!stable || !RENEW(i)) -> l[i]=0; if :: onT[i] && !own[i] -> onT[i]=0 :: else fi }

#define FENCED_S(i) (lostS[i] || s[i]==SF || s[i]==SX)
#define FENCED_T(i) (lostT[i] || t[i]==TN || t[i]==TQ)
#define FENCED_U(j) (lostU[j] || u[j]==UF)
#ifdef V_RESTORE_UNFENCED   /* the bystanders have not moved, and are not asked */
#define FENCED (both(FENCED_S) && both(FENCED_T))
#else
#define FENCED (both(FENCED_S) && both(FENCED_T) && allU(FENCED_U))
#endif

/* the source frees once a bystander is GONE: from then on its image is of no use */
#ifdef V_RELEASE_AT_RUNS     /* SW-13 rank by rank: frees once its own target is past its gate */
#define MAY_FREE(i) onT[i]
#else
#ifdef V_RELEASE_AT_GO
#define MAY_FREE(i) go
#elif NU==0
#define MAY_FREE(i) both(RAN_T)
#else
#define MAY_FREE(i) anyU(KNOWN_GONE)
#endif
#endif

#if NU==0
#define HOLDS_STILL(i) :: d_step { !lostS[i] && s[i]==SB && wd -> s[i]=SW } \
:: d_step { !lostS[i] && s[i]==SW && MAY_FREE(i) && KNOWN_KEPT -> s[i]=SX }
#else
#define HOLDS_STILL(i)
#endif
#define KNOWN_KEPT ((kept && !stable) || ((c==CK || c==CF) && cup))

#ifdef TOGETHER              /* both sources are on one node, both targets on another */
#define TOGETHER_S lostS[0]=1; lostS[1]=1
#define TOGETHER_T lostT[0]=1; lostT[1]=1; memT[0]=0; memT[1]=0; gate[0]=0; gate[1]=0; onT[0]=0; onT[1]=0
#else
#define TOGETHER_S skip
#define TOGETHER_T skip
#endif

#define SOURCE(i) HOLDS_STILL(i) \
:: d_step { !lostS[i] && s[i]==S0 -> s[i]=SB } \
:: d_step { !lostS[i] && s[i]==S0 -> s[i]=SN; left[i]=1; sOld=1 }                                /* refused, failed, or its hold ended */ \
:: d_step { !lostS[i] && s[i]==SB && !fin[i] && (!stable || t[i]==T0) -> fin[i]=1 } \
:: d_step { !lostS[i] && (s[i]==SB || s[i]==SW) && BACK -> s[i]=SR; sOld=1 } \
:: d_step { !lostS[i] && s[i]==SB && MAY_FREE(i) -> s[i]=SX } \
:: d_step { !lostS[i] && s[i]!=SX && s[i]!=SF && RESTORE -> s[i]=SF } \
:: d_step { !stable && nf<MAXFAULT && !lostS[i] && c!=CR -> lostS[i]=1; nf++; TOGETHER_S }

#ifdef V_LEASE_OF_LEAD_ONLY
#define RIGHT(i) (l[i] || own[i] || i==1)
#else
#define RIGHT(i) (l[i] || own[i])
#endif
#ifdef V_READY_NOT_DURABLE
#define PROMISED(i) (t[i]==TR || t[i]==TC || (i==1 && t[i]==TV && ready))
#else
#define PROMISED(i) (t[i]==TR || t[i]==TC)
#endif
#ifdef V_READY_RELINQUISHED  /* a restart relinquishes READY */
#define GIVES_UP(i) (t[i]==TR)
#else
#define GIVES_UP(i) 0
#endif

#ifdef V_FINISHED_IS_DEAD     /* a program that ended is taken for an instance that died */
#define ENDS(i) :: d_step { !lostT[i] && onT[i] && memT[i] -> memT[i]=0; gate[i]=0; onT[i]=0 }
#else
#define ENDS(i)
#endif

#ifdef V_STATED_BEFORE_END    /* RELINQUISHED is stated while the instance still ends */
#define STOPS(i) skip
#define ENDS_LATE(i) :: d_step { t[i]==TQ && onT[i] -> onT[i]=0 }
#else
#define STOPS(i) onT[i]=0
#define ENDS_LATE(i)
#endif

#define TARGET(i) ENDS(i) ENDS_LATE(i) \
:: d_step { !lostT[i] && t[i]==T0 && fin[i] -> t[i]=TV; memT[i]=1 } \
:: d_step { !lostT[i] && (t[i]==T0 || t[i]==TV) -> t[i]=TN; memT[i]=0; gate[i]=0; onT[i]=0; l[i]=0 } /* restarted, asked, failed, late */ \
:: d_step { !lostT[i] && !gate[i] && memT[i] && PROMISED(i) && COMMIT_STATED && FROM(lostT[0]) -> gate[i]=1 } \
:: d_step { !lostT[i] && gate[i] && memT[i] && PROMISED(i) && !onT[i] && go && RIGHT(i) -> onT[i]=1; RAN(i) } \
:: d_step { !lostT[i] && !own[i] && memT[i] && (t[i]==TR || t[i]==TC) && ((s[i]==SX && FROM(lostS[i])) || (fwd && !stable) || (c==CF && cup)) -> own[i]=1 } \
:: d_step { !stable && nf<MAXFAULT && !lostT[i] && memT[i] && t[i]!=TQ && c!=CR -> nf++; memT[i]=0; gate[i]=0; onT[i]=0 }   /* instance dies */ \
:: d_step { !stable && !rf && !lostT[i] && memT[i] && !gate[i] && (t[i]==TR || t[i]==TC) && COMMIT_STATED -> rf=1; memT[i]=0 } /* resume fails */ \
:: d_step { !lostT[i] && !memT[i] && (t[i]==TR || t[i]==TC) -> t[i]=TQ; l[i]=0; own[i]=0 } \
:: d_step { !lostT[i] && (t[i]==TR || t[i]==TC) && (BACK || RESTORE || GIVES_UP(i)) -> t[i]=TQ; memT[i]=0; gate[i]=0; STOPS(i); l[i]=0; own[i]=0 } \
:: d_step { !stable && nf<MAXFAULT && !lostT[i] && c!=CR -> lostT[i]=1; nf++; memT[i]=0; gate[i]=0; onT[i]=0; TOGETHER_T }

#if defined(V_READY_NOT_DURABLE) || defined(READY_BEFORE_RUNS)   /* the lead is told before the record is durable */
#define SENDS_READY (t[1]==TR || t[1]==TV)
#else
#define SENDS_READY (t[1]==TR)
#endif
#if defined(V_GO_EARLY) || NR==1   /* GO before all RUNS; the lead knows its own */
#define ALL_RESUMED 1
#else
#define ALL_RESUMED resumed
#endif

#ifdef V_COMMIT_WITHOUT_GRANT
#define COMMIT_LEASE 1
#elif defined(COMMIT_WITHOUT_LEASE)   /* at the commit point it is enough to know GRANTED(n+1) */
#define COMMIT_LEASE (c==CG || c==CK || c==C2 || c==CA || c==CF)
#else
#define COMMIT_LEASE l[0]
#endif

#if NR==1                    /* no other target that the lead waits for */
#define ALL_READY 1
#define OTHER_TARGET
#else
#define ALL_READY ready
#define OTHER_TARGET \
:: d_step { !lostT[1] && t[1]==TV -> t[1]=TR } \
:: d_step { !lostT[1] && SENDS_READY && !ready -> ready=1 } \
:: d_step { !lostT[1] && gate[1] && !resumed -> resumed=1 }
#endif

#define LEAD OTHER_TARGET \
:: d_step { !lostT[0] && t[0]==TV && ALL_READY && allU(HELD_U) && COMMIT_LEASE -> t[0]=TC }          /* the commit point */ \
:: d_step { !lostT[0] && LEAD_DECIDES && gate[0] && ALL_RESUMED && !go -> go=1 }

#ifdef V_HELD_VOLATILE       /* a bystander's hold ends by itself after it stated HELD */
#define LEAVES(j) (u[j]==U0 || u[j]==UH)
#else
#define LEAVES(j) (u[j]==U0)
#endif

#define BYSTANDER(j) \
:: d_step { !lostU[j] && u[j]==U0 -> u[j]=UH } \
:: d_step { !lostU[j] && u[j]==UH && !held[j] -> held[j]=1 } \
:: d_step { !lostU[j] && LEAVES(j) && oldc[j] -> u[j]=UO; uOld=1 } \
:: d_step { !lostU[j] && (u[j]==UH || u[j]==UL) && go -> u[j]=UG; gone[j]=1; oldc[j]=0 }          /* swap() */ \
:: d_step { !lostU[j] && (u[j]==U0 || u[j]==UH) && wd -> u[j]=US } \
:: d_step { !lostU[j] && u[j]==US && KNOWN_KEPT -> u[j]=UL } \
:: d_step { !lostU[j] && (u[j]==U0 || u[j]==UH || u[j]==US || u[j]==UL) && BACK && oldc[j] -> u[j]=UO; uOld=1 } \
:: d_step { !lostU[j] && u[j]!=UF && RESTORE -> u[j]=UF } \
:: d_step { !stable && nf<MAXFAULT && !lostU[j] && c!=CR -> lostU[j]=1; nf++ }

/* broken variants that are steps of their own */
#ifdef V_COMMIT_NOT_DURABLE
#define BRK1 :: d_step { !lostT[0] && t[0]==TV && ready && allU(HELD_U) && l[0] && !said -> said=1 } \
:: d_step { !lostT[0] && t[0]==TV && said && memT[0] && !gate[0] -> gate[0]=1 }
#else
#define BRK1
#endif
#ifdef V_RUN_ON_READY
#define BRK2 :: d_step { !lostT[1] && t[1]==TR && memT[1] && !onT[1] && l[1] -> onT[1]=1 }
#else
#define BRK2
#endif
#ifdef V_SWAP_AT_VERIFIED
#define BRK3 :: d_step { !lostU[0] && u[0]==UH && t[0]==TV && t[1]==TV -> u[0]=UG; gone[0]=1; oldc[0]=0 }
#else
#define BRK3
#endif
#ifdef V_STILL_FORGOTTEN     /* the keeper restarts, and has no record that it refuses GO */
#define BRK4 :: d_step { !lostU[0] && u[0]==US -> u[0]=UH }
#else
#define BRK4
#endif
#ifdef V_OLD_ABORTED_EARLY   /* the old communicators are aborted at COMMITTED */
#define BRK5 :: d_step { !lostU[0] && u[0]==UH && oldc[0] && COMMIT_STATED -> oldc[0]=0 }
#else
#define BRK5
#endif
#ifdef V_C_FORGETS           /* GRANTED(n+2) is sent before it is durable; C restarts */
#define BRK6 :: d_step { c==C2 && !forgot && !stable -> c=CG; forgot=1 }
#else
#define BRK6
#endif

#define ON_S(i) (!lostS[i] && (s[i]==SR || s[i]==SN))
#define ON_T(i) (onT[i])
#define ON_U(j) (!lostU[j] && (u[j]==UG || u[j]==UO))
#define OLD_U(j) (!lostU[j] && u[j]==UO)

/* (a) no rank runs twice */
#define TWICE(i) (ON_S(i) && ON_T(i))
#define ONE (!either(TWICE) && !(onR && (either(ON_S) || either(ON_T) || anyU(ON_U))))
/* (b) no progress past n in both epochs: a bystander that swapped excludes the old epoch for good, and no target runs while the old
 * epoch goes on.  A target that ran under a lease which is over may be discarded: it is a copy. */
#define MIXED ((anyU(GONE_U) && (sOld || uOld)) || (either(ON_T) && (either(ON_S) || anyU(OLD_U))))
/* (c) two complete sets until GO is taken or the return is granted; with one fault, one of them */
#define OLD_S(i) (!lostS[i] && (s[i]==SB || s[i]==SW))
#define NEW_T(i) (!lostT[i] && memT[i] && (t[i]==TR || t[i]==TC))
#define AT_N(j) (!lostU[j] && (u[j]==UH || u[j]==US || u[j]==UL))
#define OLD_COMM(j) oldc[j]
#define CAN_GO(j) (u[j]!=US || LIFTS)
#define OLD_SET (both(OLD_S) && allU(OLD_COMM) && c==CG)
#define NEW_SET (both(NEW_T) && allU(CAN_GO))
#if NU==0
#define GO_TAKEN both(RAN_EVER)
#else
#define GO_TAKEN 0
#endif
#define UNDECIDED (COMMIT_STATED && allU(AT_N) && !GO_TAKEN && (c==CG || c==CK || c==CF))
#define SETS (!UNDECIDED || ((nf+rf>0 || (OLD_SET && NEW_SET)) && (nf+rf>1 || OLD_SET || NEW_SET)))
/* (d) work is lost only through a fault, and only if no complete set is there */
#define IN_NEW(j) (!lostU[j] && (u[j]==UH || u[j]==US || u[j]==UL || u[j]==UG))
#define RESTORE_OK (nf>0 && !((c==CG || c==CK) && COMMIT_STATED && both(NEW_T) && allU(IN_NEW)) \
  && !((c==CG || c==CK) && both(OLD_S) && allU(AT_N) && allU(OLD_COMM)))

/* Two properties of switch.pml that one rank which moves lacks (docs/adr/0055).  No image is used while the target's memory is whole.
 * Without C the job runs, if no node is lost and no instance has died. */
#ifdef PROP_WHOLE
#undef RESTORE_OK
#define RESTORE_OK (!both(NEW_T))
#endif
#ifdef PROP_ONE
#undef RESTORE_OK
#define RESTORE_OK 1
#define SAFE (ONE && !MIXED)
#else
#define SAFE (ONE && !MIXED && SETS)
#endif

/* (e) in the end the old gang runs, or the new one, or the job has been restored.  Where C is away for ever, a fault or a return that
 * has begun waits for C. */
#define OLD_RUNS (both(ON_S) && allU(OLD_U))
#define NEW_RUNS (both(ON_T) && allU(IS_UG) && !anyU(LOST_U))
#if NU==0 && !defined(PROP_ALONE)   /* without a bystander that swaps, the targets need C's leases until all have passed their gates */
#define WAITS_FOR_C COMMIT_STATED
#else
#define WAITS_FOR_C 0
#endif
#ifdef PROP_ALONE
#define WAITS_FOR_A_DECISION 0
#else
#define WAITS_FOR_A_DECISION (c==C2 || c==CK || STILL)
#endif
#define okgoal (OLD_RUNS || NEW_RUNS || onR || (!cup && (nf>0 || rf || WAITS_FOR_A_DECISION || WAITS_FOR_C)))

#ifndef REACHED
#define REACHED
#endif

active proctype P() {
  d_step { oldc[0]=1; oldc[1]=1 }
  do
  COORD
  SOURCE(0) TARGET(0)
#if NR>1
  SOURCE(1) TARGET(1)
#endif
  LEAD
  #if NU>0
  BYSTANDER(0)
#endif
#if NU>1
  BYSTANDER(1)
#endif
  BRK1 BRK2 BRK3 BRK4 BRK5 BRK6
  REACHED
#ifndef LIVE
  :: d_step { !(SAFE) -> assert(false) }
#endif
#if defined(LIVE) || defined(STABLE)
  /* the faults end: all in flight is lost */
  :: d_step { !stable && cup==0 -> stable=1; cup=1; fin[0]=0; fin[1]=0; held[0]=0; held[1]=0; ready=0; resumed=0; go=0; wd=0 }
  :: d_step { !stable && cup==0 -> stable=1; fin[0]=0; fin[1]=0; held[0]=0; held[1]=0; ready=0; resumed=0; go=0; wd=0 }
#endif
  od
}

#ifdef LIVE
ltl live { (<> stable) -> (<> [] okgoal) }
#endif
