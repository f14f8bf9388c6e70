/* SPDX-License-Identifier: Apache-2.0
 * The life of a job (docs/adr/0054): two nodes that come and go, a coordinator, and its users.  One rank;
 * with -DNR=2 two ranks that end and rest together.  A rank's row is its record in the coordinator's store.
 * A comment (n) names row n of ADR 54's table of transitions.  I1 to I9 are its invariants, J1 to J5 its
 * rules among ranks.
 *
 * As in switch.pml each line of `do` is one atomic step of one party.  A step of the coordinator is one write
 * of its store.  It depends on stored rows and on the reports of connected nodes, and on nothing else.  So a
 * crash between two writes is the interleaving in which both nodes are disconnected: answers on their way are
 * lost.  Three processes have the steps:
 *   Nodes        instances, what agents do about orders, connections, reboots, removal by an operator
 *   Users        commands of users, and what the coordinator begins by itself in their place
 *   Coordinator  transitions by reports and answers, and the orders that are due
 *
 * Instances.  Cell I(i,n,j) is what node n has of rank i as incarnation j.  An order to start it (IO) is
 * carried out at any later time, or never, whether its node is connected or not.  A connected node shows the
 * instances that run or are over, and does not show an order that it is at.  StopJob(j) ends all instances up
 * to j, and gives up the orders to start one.  Its answer may be late; it follows the reports of these ends.
 *
 * A move is one atomic change of node and incarnation, some time after it was opened.  switch.pml has its
 * inside.  A snapshot is one step: the job leaves for its image.  Images are there, or damaged.  Each node
 * has a place for the job.  (13), (14) and (35) change nothing here: a snapshot may be given up at any time.
 *
 * Liveness.  At one moment chosen by the checker (stable=1) nodes stay as they are for ever, no instance
 * exits by itself, and users are silent.  From then on each step can happen a bounded number of times, so
 * "eventually" needs no fairness.
 *
 * Two ranks.  Each is restored at a node of its own, and no node is removed.  A suspension of both begins
 * once the set of their images was taken.
 *
 * -DFORGET: an older copy of the store comes back, once.  It exists for the transitions (3) and (33).  The
 * job may run twice then, and I1 to I4 and I8 are not checked.
 * -DV_xxx: deliberately broken variants, each must be caught.
 */
#ifndef NR
#define NR 1              /* ranks: 1 or 2 */
#endif
#ifndef NK
#define NK 3              /* the highest incarnation: 2 to 4 */
#endif

/* the state of a rank */
#define R0 0   /* no row */
#define RS 1   /* Starting */
#define RR 2   /* Running; while a move is open: Moving */
#define RP 3   /* Parking */
#define RE 4   /* Ending, then start */
#define RT 5   /* Ending, then rest */
#define RC 6   /* Coming */
#define RK 7   /* Parked */
#define RX 8   /* Ended: exited or stopped */
#define RF 9   /* Ended: failed */
#define RL 10  /* Ended: lost */
#define RG 11  /* GONE: removed */
/* an instance */
#define I0 0   /* none */
#define IO 1   /* an order to start it is under way */
#define IR 2   /* runs */
#define IX 3   /* has exited, and its node reports it */
#define IL 4   /* has left: into an image, or to another node */
/* a move */
#define M0 0   /* none */
#define MO 1   /* open: may be aborted */
#define MT 2   /* the target runs, and the row does not have it yet */
#define MC 3   /* closing: the row has it, the source has not confirmed yet */

/* durable: the row */
byte r[NR], k[NR], at[NR], fence[NR];
bit to[NR];                        /* Ending, then start: the node to start at */
bit stop[NR];                      /* the rank is to be stopped */
bit gone[NR];                      /* Ending: the own instance is over, or dead by the operator's word */
bit unp[NR*2];                     /* the node is unproven: something that was given up may live there */
bit unf[NR];                       /* unfenced: the own node was removed, and may run the rank */
bit rev[NR];                       /* revived from another job's image, and has not run yet */
/* durable: the journal of moves; removed nodes */
byte mv[NR];
bit rem[2];                        /* the node was removed (node rm --force) */
bit dead[2];                       /* and is dead by the operator's word (--fenced), which is true */
/* nodes and connections */
byte inst[NR*2*(NK+1)+1];
bit conn[2];
bit snap[NR];                      /* the own node is at an order to take the last snapshot */
byte ans[NR*2];                    /* the answer to StopJob(ans-1) is on its way; 0: none is */
bit stable;
/* the past, for the properties */
byte top[NR];                      /* the highest incarnation that was given */
byte word[NR*2];                   /* instances up to this one are dead by the operator's word (--force) */
bit told[NR];                      /* a stop was accepted, and no user has restored the job since */
#if NR>1
bit bad[NR];                       /* exited with another code than 0, or stopped */
#endif
#ifdef FORGET
byte o_r, o_k, o_at, o_fence;      /* the older copy */
bit o_stop, o_gone, o_to, o_unp0, o_unp1, o_unf, o_rev, kept, forgot;
#endif
#ifdef V_STOP_AFTER_RECORD
bit begun[NR];                     /* in memory only: the stop goes on once the operation has ended */
#endif

#define I(i,n,j) inst[((i)*2+(n))*(NK+1)+(j)]
#define OWN(i) I(i,at[i],k[i])
#define UNP(i,n) unp[(i)*2+(n)]
#define ANS(i,n) ans[(i)*2+(n)]
#define WORD(i,n) word[(i)*2+(n)]

#if NK==2
#define anyJ(p,i,n) (p(i,n,1) || p(i,n,2))
#define sumJ(p,i,n) (p(i,n,1) + p(i,n,2))
#define HIGHEST(p,i) (p(i,2) -> 2 : p(i,1))
#define EACH_J(s,i,n) s(i,n,1) s(i,n,2)
#define DO_J(s,i,n) s(i,n,1); s(i,n,2)
#elif NK==3
#define anyJ(p,i,n) (p(i,n,1) || p(i,n,2) || p(i,n,3))
#define sumJ(p,i,n) (p(i,n,1) + p(i,n,2) + p(i,n,3))
#define HIGHEST(p,i) (p(i,3) -> 3 : (p(i,2) -> 2 : p(i,1)))
#define EACH_J(s,i,n) s(i,n,1) s(i,n,2) s(i,n,3)
#define DO_J(s,i,n) s(i,n,1); s(i,n,2); s(i,n,3)
#else
#define anyJ(p,i,n) (p(i,n,1) || p(i,n,2) || p(i,n,3) || p(i,n,4))
#define sumJ(p,i,n) (p(i,n,1) + p(i,n,2) + p(i,n,3) + p(i,n,4))
#define HIGHEST(p,i) (p(i,4) -> 4 : (p(i,3) -> 3 : (p(i,2) -> 2 : p(i,1))))
#define EACH_J(s,i,n) s(i,n,1) s(i,n,2) s(i,n,3) s(i,n,4)
#define DO_J(s,i,n) s(i,n,1); s(i,n,2); s(i,n,3); s(i,n,4)
#endif
#define anyN(p,i) (p(i,0) || p(i,1))
#define anyNJ(p,i) (anyJ(p,i,0) || anyJ(p,i,1))
#define sumNJ(p,i) (sumJ(p,i,0) + sumJ(p,i,1))
#define EACH_NJ(s,i) EACH_J(s,i,0) EACH_J(s,i,1)
#if NR>1
#define anyR(p) (p(0) || p(1))
#define allR(p) (p(0) && p(1))
#define EACH_R(s) s(0) s(1)
#define DO_R(s) s(0); s(1)
#define EACH_RN(s) s(0,0) s(0,1) s(1,0) s(1,1)
#define EACH_RNJ(s) EACH_NJ(s,0) EACH_NJ(s,1)
#else
#define anyR(p) p(0)
#define allR(p) p(0)
#define EACH_R(s) s(0)
#define DO_R(s) s(0)
#define EACH_RN(s) s(0,0) s(0,1)
#define EACH_RNJ(s) EACH_NJ(s,0)
#endif

#define ENDED(i) (r[i]==RX || r[i]==RF || r[i]==RL)
#define LIVE_JOB(i) (r[i]!=R0 && r[i]!=RG && !ENDED(i))
#define OPERATION(i) (r[i]==RP || r[i]==RE || r[i]==RT || r[i]==RC)
#define ENDING(i) (r[i]==RE || r[i]==RT)
#define THERE(i) conn[at[i]]       /* the own node is connected */
#define OVER(i) (OWN(i)==IX || OWN(i)==IL)
#define SHOWS_NONE(i) (THERE(i) && (OWN(i)==I0 || OWN(i)==IO))
#define OPEN(i) (mv[i]!=M0)
#define OPEN_ANY anyR(OPEN)        /* J5: an open move of one rank counts for all */
#define STARTS_OR_RUNS(i,n,j) (I(i,n,j)==IO || I(i,n,j)==IR)

/* highest_known(): by the row, the fence, and the reports of connected nodes */
#define KNOWN(i,j) (k[i]>=(j) || fence[i]>=(j) || (conn[0] && I(i,0,j)>=IR) || (conn[1] && I(i,1,j)>=IR))
#define H(i) HIGHEST(KNOWN,i)

/* Incarnations up to this one are given up: Ending waits for their end, and a proof is about them. */
#define GOES_ON(i) ((r[i]==RS && !stop[i]) || r[i]==RR || r[i]==RP)
#ifdef V_NO_FENCE
#define RAISE_FENCE(i) skip
#define UP_TO(i) (GOES_ON(i) -> fence[i] : H(i))
#else
#define RAISE_FENCE(i) fence[i]=H(i)
#define UP_TO(i) ((GOES_ON(i) || OPERATION(i)) -> fence[i] : H(i))
#endif
#define GIVEN_UP(i,n,j) (I(i,n,j)==IR && (j)<=UP_TO(i))
#define SHOWS(i,n) (conn[n] && anyJ(GIVEN_UP,i,n))
#define UNPROVEN(i,n) UNP(i,n)
#define UNPROVEN_AWAY(i,n) (UNP(i,n) && !conn[n])
#define UNPROVEN_HERE(i,n) (UNP(i,n) && conn[n])

/* Ending may go on */
#ifdef V_START_BEFORE_PROOF
#define ALL_PROVEN(i) 1
#else
#define ALL_PROVEN(i) (!anyN(UNPROVEN,i))
#endif
#define SETTLED(i) (!anyN(SHOWS,i) && ALL_PROVEN(i) && (THERE(i) || gone[i]))
#define STOPS_HERE(i) (stop[i] && !anyN(SHOWS,i) && !anyN(UNPROVEN_HERE,i))

/* may_restore() */
#define ALLOWED(i) (!OPEN_ANY && !unf[i] && H(i)<NK)
#define FREE(i) ((r[i]!=RR || THERE(i)) && !anyN(UNPROVEN_AWAY,i))

/* An instance that is over is forgotten once its rank has been judged: fewer states. */
#define JUDGED(i) if :: OVER(i) -> OWN(i)=I0 :: else fi; snap[i]=0; gone[i]=0

/* ---------------------------------------------------------------- parts of several steps */

/* (24), (27), (28), (29): the rank is to be stopped.  A start that is given up leaves its node unproven. */
#define UNPROVEN_OWN(i) UNP(i,at[i])=1
#ifdef V_K_REUSED                  /* an incarnation whose start failed is given again */
#define NOT_STARTED(i) k[i]=fence[i]; JUDGED(i)
#else
#define NOT_STARTED(i) fence[i]=k[i]; JUDGED(i)
#endif
#ifdef V_START_FORGOTTEN           /* a start that is given up leaves no trace */
#define GIVES_UP_START(i) skip
#else
#define GIVES_UP_START(i) UNPROVEN_OWN(i)
#endif
#ifdef V_STOP_AFTER_RECORD
#define BEGUN(i) begun[i]=1
#define STOPS_NOW(i) begun[i]
#else
#define BEGUN(i) skip
#define STOPS_NOW(i) 1
#endif
#define STOPS(i) if \
     :: r[i]==RS || r[i]==RR || r[i]==RP -> stop[i]=1 \
     :: r[i]==RE -> stop[i]=1; if :: !gone[i] -> UNPROVEN_OWN(i) :: else fi; to[i]=0; r[i]=RT \
     :: r[i]==RT && !stop[i] -> stop[i]=1; if :: !gone[i] -> UNPROVEN_OWN(i) :: else fi \
     :: r[i]==RC -> stop[i]=1; RESTS_UNSTARTED(i) \
     :: r[i]==RK -> stop[i]=1; BEGUN(i) \
     :: else fi
#define RESTS_UNSTARTED(i) GIVES_UP_START(i); NOT_STARTED(i); BEGUN(i); \
     if :: rev[i] -> r[i]=RF :: else -> r[i]=RK fi

/* (19), (20): from an image.  By the operator's word what lives at nodes that are away is dead. */
#define BY_WORD(i,n) if :: UNP(i,n) && !conn[n] -> UNP(i,n)=0; WORD(i,n)=H(i) :: else fi
#define NODE_OF(i,n) (((i)==0) -> (n) : 1-(n))   /* two ranks go to two nodes */
#define RESTORES(i,n) \
     if :: r[i]==RC -> GIVES_UP_START(i) :: else fi; \
     if :: LIVE_JOB(i) && r[i]!=RK && !THERE(i) -> gone[i]=1; WORD(i,at[i])=H(i) \
        :: LIVE_JOB(i) && r[i]!=RK && THERE(i) -> gone[i]=0 \
        :: else -> gone[i]=1 fi; \
     BY_WORD(i,0); BY_WORD(i,1); \
     RAISE_FENCE(i); stop[i]=0; NOT_BAD(i); to[i]=NODE_OF(i,n); \
     if :: r[i]!=RE -> r[i]=RE :: else fi
/* (21): into the image that is given.  A stop stays in force. */
#define RESTS(i) gone[i]=(r[i]!=RR); RAISE_FENCE(i); \
     if :: stop[i] && !gone[i] -> UNPROVEN_OWN(i) :: else fi; r[i]=RT

#if NR>1
/* Rules among ranks, in the same write as the step before.  J4 is J1 with another grace. */
#define FAILED(i) (r[i]==RF || r[i]==RL || (r[i]==RX && bad[i]))
#define MUST_STOP(i,o) (FAILED(o) && LIVE_JOB(i) && !stop[i])
#define MUST_REST(i,o) (r[o]==RK && !anyR(FAILED) && !stop[i] && \
  (r[i]==RC || r[i]==RE || (r[i]==RR && MAY_REST(i))))
#define J1(i,o) if :: MUST_STOP(i,o) -> STOPS(i); told[i]=1 :: else fi
#define J2(i,o) if \
     :: MUST_REST(i,o) && r[i]==RC -> RESTS_UNSTARTED(i) \
     :: MUST_REST(i,o) && r[i]==RE -> to[i]=0; r[i]=RT \
     :: MUST_REST(i,o) && r[i]==RR -> RESTS(i) \
     :: else fi
#ifdef V_RESTS_PAST_A_MOVE         /* J2 does not wait for the end of an open move */
#define MAY_REST(i) 1
#else
#define MAY_REST(i) (!OPEN(i))
#endif
#define AMONG_RANKS J1(0,1); J1(1,0); J2(0,1); J2(1,0); J1(0,1); J1(1,0)
#define BAD(i) bad[i]=1
#define NOT_BAD(i) bad[i]=0
#define EXITED_BADLY(i) :: d_step { EXITED(i) -> JUDGED(i); bad[i]=1; r[i]=RX; AMONG_RANKS }
#define RETURNS(i) (!anyR(FAILED))
#else
#define AMONG_RANKS skip
#define BAD(i) skip
#define NOT_BAD(i) skip
#define EXITED_BADLY(i)
#define RETURNS(i) 1
#endif

/* ---------------------------------------------------------------- Nodes */

/* A row that has judged the instance needs no report of its end. */
#define ENDS(i,n,j) \
     if :: (n)==at[i] && (j)==k[i] -> snap[i]=0; \
           if :: ENDED(i) || r[i]==RG -> I(i,n,j)=I0 :: else -> I(i,n,j)=IX fi \
        :: else -> if :: mv[i]==MT && (j)>k[i] -> I(i,n,j)=IX :: else -> I(i,n,j)=I0 fi fi

#define INSTANCE(i,n,j) \
:: d_step { I(i,n,j)==IO -> I(i,n,j)=IR } \
:: d_step { !stable && I(i,n,j)==IO -> I(i,n,j)=I0 }                  /* the order is lost */ \
:: d_step { !stable && I(i,n,j)==IR -> ENDS(i,n,j) }                  /* exits by itself */ \
:: d_step { mv[i]==MO && (n)==at[i] && (j)==k[i] && (j)<NK && I(i,n,j)==IR -> \
     I(i,n,j)=IL; I(i,1-(n),(j)+1)=IR; top[i]=(j)+1; mv[i]=MT }       /* the switch */

#define SNAPSHOT(i) :: d_step { snap[i] && OWN(i)==IR -> OWN(i)=IL; snap[i]=0 }

#define NONE(i,n,j) I(i,n,j)=I0
#define WIPE_0(i) DO_J(NONE,i,0); ANS(i,0)=0; if :: at[i]==0 -> snap[i]=0 :: else fi
#define WIPE_1(i) DO_J(NONE,i,1); ANS(i,1)=0; if :: at[i]==1 -> snap[i]=0 :: else fi
#define NO_ANSWER_0(i) ANS(i,0)=0
#define NO_ANSWER_1(i) ANS(i,1)=0
#define WORKS_0(i) (OPERATION(i) && (at[i]==0 || (r[i]==RE && to[i]==0)))
#define WORKS_1(i) (OPERATION(i) && (at[i]==1 || (r[i]==RE && to[i]==1)))

#if NR>1                            /* two ranks: no node is removed */
#define REMOVAL(n,WIPE,WORKS)
#else
/* An operator removes a node that is away, and that no move or operation is open for. */
#define REMOVAL(n,WIPE,WORKS) \
:: d_step { !stable && !conn[n] && !rem[n] && !OPEN_ANY && !anyR(WORKS) -> rem[n]=1 } \
:: d_step { !stable && !conn[n] && !dead[n] && (rem[n] || (!OPEN_ANY && !anyR(WORKS))) -> \
     rem[n]=1; dead[n]=1; DO_R(WIPE) }                             /* --fenced, maybe later */ \
:: d_step { !stable && rem[n] -> rem[n]=0; dead[n]=0 }             /* node add */
#endif

#define NODE(n,WIPE,NO_ANSWER,WORKS) \
:: d_step { !stable && !conn[n] && !rem[n] -> conn[n]=1 } \
:: d_step { !stable && conn[n] -> conn[n]=0; DO_R(NO_ANSWER) } \
:: d_step { !stable && !rem[n] -> conn[n]=0; DO_R(WIPE) }          /* reboots */ \
REMOVAL(n,WIPE,WORKS)

/* A removed node that calls is refused, and told to end what must not run. */
#define REFUSED(i,n,j) \
:: d_step { !stable && rem[n] && I(i,n,j)==IR && ((j)<=fence[i] || (stop[i] && ENDED(i))) -> ENDS(i,n,j) }

active proctype Nodes() {
  do
  EACH_RNJ(INSTANCE)
  EACH_R(SNAPSHOT)
  NODE(0,WIPE_0,NO_ANSWER_0,WORKS_0)
  NODE(1,WIPE_1,NO_ANSWER_1,WORKS_1)
#if NR==1
  EACH_RNJ(REFUSED)
#endif
#ifdef LIVE
  :: d_step { !stable && r[0]!=R0 -> stable=1 }
#endif
  od
}

/* ---------------------------------------------------------------- Users */

#define SUBMITTED(i) k[i]=1; top[i]=1; at[i]=(i); r[i]=RS
#define NEW(i) (r[i]==R0 && top[i]==0)
#define REVIVED(i) k[i]=0; rev[i]=1; r[i]=RK
#define STOPPABLE(i) (LIVE_JOB(i) && !stop[i])
#define STOPPED(i) if :: LIVE_JOB(i) -> STOPS(i); told[i]=1 :: else fi
#define SUSPENDABLE(i) (r[i]==RR && !stop[i] && !snap[i])
#if NR>1
#define SUSPENDED(i) RESTS(i)      /* in the images of all ranks, which were taken before */
#else
#define SUSPENDED(i) r[i]=RP
#endif
#define RESTORABLE(i) (ALLOWED(i) && FREE(i) && (r[i]==RR || r[i]==RK || ENDED(i)))
#define RESTORABLE_BY_FORCE(i) (ALLOWED(i) && LIVE_OR_ENDED(i) && r[i]!=RS)
#define LIVE_OR_ENDED(i) (r[i]!=R0 && r[i]!=RG)
#define RESTORED_0(i) told[i]=0; RESTORES(i,0)
#define RESTORED_1(i) told[i]=0; RESTORES(i,1)
#if NR>1
#define PLACES(n) ((n)==0)         /* each rank has a node of its own */
#else
#define PLACES(n) (!rem[n])
#endif
#define MOVABLE(i) (r[i]==RR && !stop[i] && !snap[i] && OWN(i)==IR && k[i]<NK && conn[0] && conn[1])
#define REMOVABLE(i) (ENDED(i) && PROVEN_FOR_REMOVAL(i))
#ifdef V_REMOVE_UNFENCED           /* B7 */
#define PROVEN_FOR_REMOVAL(i) (!anyN(UNPROVEN,i))
#else
#define PROVEN_FOR_REMOVAL(i) (!anyN(UNPROVEN,i) && !unf[i])
#endif
/* I8: nothing lives, except where the operator's word was that it does not */
#define LIVES_UNKNOWN(i,n,j) (STARTS_OR_RUNS(i,n,j) && (j)>WORD(i,n))
#ifdef FORGET
#define I8(i) skip
#else
#define I8(i) assert(!anyNJ(LIVES_UNKNOWN,i))
#endif
#define REMOVED(i) I8(i); k[i]=0; at[i]=0; r[i]=RG

/* Begun by the coordinator itself: moves, evacuations, drains, resumes.  These do not lift a stop. */
#ifdef V_ITSELF_LIFTS_STOP         /* B3, B14 */
#define BY_ITSELF(i) 1
#else
#define BY_ITSELF(i) (!stop[i])
#endif
#if NR>1
#define ITSELF(i) \
:: d_step { !stable && !OPEN_ANY && MOVABLE(i) && NONE_STOPS -> mv[i]=MO }
#define NONE_STOPS (!stop[0] && !stop[1])
#else
#define ITSELF(i) \
:: d_step { !stable && (r[i]==RR || ENDED(i)) && ALLOWED(i) && FREE(i) -> RESTS(i) }    /* (21) */ \
:: d_step { !stable && RESTORABLE(i) && BY_ITSELF(i) && PLACES(0) -> RESTORES(i,0); AMONG_RANKS } \
:: d_step { !stable && RESTORABLE(i) && BY_ITSELF(i) && PLACES(1) -> RESTORES(i,1); AMONG_RANKS } \
:: d_step { !stable && !OPEN_ANY && MOVABLE(i) -> mv[i]=MO }
#endif

active proctype Users() {
  do
#ifdef V_RANKS_APART               /* J3 in two writes: the second may not follow */
  :: d_step { !stable && NEW(0) -> SUBMITTED(0) }
  :: d_step { !stable && NEW(1) && r[0]!=R0 -> SUBMITTED(1); AMONG_RANKS }
#else
  :: d_step { !stable && allR(NEW) -> DO_R(SUBMITTED) }                    /* (1) */
#endif
#if NR==1
  :: d_step { !stable && NEW(0) -> REVIVED(0) }                            /* (2) */
#endif
  :: d_step { !stable && anyR(STOPPABLE) -> DO_R(STOPPED); AMONG_RANKS }
  :: d_step { !stable && !OPEN_ANY && allR(SUSPENDABLE) -> DO_R(SUSPENDED); AMONG_RANKS }   /* (12) */
  /* (19), and by force also (20) */
  :: d_step { !stable && allR(RESTORABLE) && PLACES(0) -> DO_R(RESTORED_0); AMONG_RANKS }
  :: d_step { !stable && allR(RESTORABLE) && PLACES(1) -> DO_R(RESTORED_1); AMONG_RANKS }
  :: d_step { !stable && allR(RESTORABLE_BY_FORCE) && PLACES(0) -> DO_R(RESTORED_0); AMONG_RANKS }
  :: d_step { !stable && allR(RESTORABLE_BY_FORCE) && PLACES(1) -> DO_R(RESTORED_1); AMONG_RANKS }
  :: d_step { !stable && !OPEN_ANY && allR(REMOVABLE) -> DO_R(REMOVED) }                    /* (36) */
  EACH_R(ITSELF)
  od
}

/* ---------------------------------------------------------------- Coordinator */

#define EXITED(i) ((r[i]==RS || r[i]==RR) && THERE(i) && OWN(i)==IX && !OPEN(i))
#ifdef V_PROOF_BY_INVENTORY        /* B5: a node that shows none has none */
#define ANSWERED(i,n) 1
#else
#define ANSWERED(i,n) (ANS(i,n)>UP_TO(i))
#endif
#ifdef V_NO_PROOF_OF_A_START       /* B5: a first start that a node does not show is over */
#define GIVES_UP_FIRST(i) skip
#else
#define GIVES_UP_FIRST(i) GIVES_UP_START(i)
#endif
/* I2: each lower incarnation is over, or dead by the operator's word */
#define LIVES_BELOW(i,n,j) (STARTS_OR_RUNS(i,n,j) && (j)>WORD(i,n))
#ifdef FORGET
#define I2(i) skip
#define I3(i) skip
#else
#define I2(i) assert(!anyNJ(LIVES_BELOW,i))
#define I3(i) assert(k[i]>top[i])
#endif
#define COMES(i) JUDGED(i); I2(i); k[i]=UP_TO(i)+1; at[i]=to[i]; to[i]=0; I3(i); top[i]=k[i]; r[i]=RC

#ifdef V_REMOVAL_FORGOTTEN         /* a restart between the removal of a node and its jobs' rows */
#define REMEMBERED(i) (!stable)
#else
#define REMEMBERED(i) 1
#endif
#define LOST_WITH_NODE(i) ((r[i]==RS || r[i]==RR) && rem[at[i]] && !OPEN(i))
#define LEFT(i) (r[i]==RR && THERE(i) && OWN(i)==IL && !OPEN(i))

#define FACTS(i) \
/*  (4) */ :: d_step { r[i]==RS && THERE(i) && (OWN(i)==IR || OWN(i)==IL) -> r[i]=RR } \
/*  (5) */ :: d_step { r[i]==RS && THERE(i) && OWN(i)==IO -> OWN(i)=I0; r[i]=RF; AMONG_RANKS } \
/*  (6) */ :: d_step { r[i]==RS && stop[i] && SHOWS_NONE(i) -> \
                GIVES_UP_FIRST(i); BAD(i); r[i]=RX; AMONG_RANKS } \
/*  (7) */ :: d_step { EXITED(i) -> JUDGED(i); r[i]=RX; AMONG_RANKS } EXITED_BADLY(i) \
/*  (8) */ :: d_step { r[i]==RR && SHOWS_NONE(i) && !OPEN(i) -> JUDGED(i); r[i]=RL; AMONG_RANKS } \
/*  (9) */ :: d_step { LEFT(i) && !stop[i] -> JUDGED(i); r[i]=RL; AMONG_RANKS } \
           :: d_step { LEFT(i) && stop[i] -> JUDGED(i); BAD(i); r[i]=RX; AMONG_RANKS } \
/* (10) */ :: d_step { mv[i]==MT && conn[1-at[i]] -> JUDGED(i); k[i]=k[i]+1; at[i]=1-at[i]; mv[i]=MC } \
/* (11) */ :: d_step { mv[i]==MO -> mv[i]=M0; AMONG_RANKS } \
           :: d_step { mv[i]==MC && conn[0] && conn[1] -> mv[i]=M0; AMONG_RANKS } \
/* (15) */ :: d_step { r[i]==RP && THERE(i) && OWN(i)==IR -> snap[i]=0; r[i]=RR; AMONG_RANKS } \
/* (16) */ :: d_step { r[i]==RP && THERE(i) && (OWN(i)==IL || OWN(i)==I0) -> \
                JUDGED(i); fence[i]=H(i); BEGUN(i); r[i]=RK; AMONG_RANKS } \
/* (17) */ :: d_step { r[i]==RP && THERE(i) && OWN(i)!=IR -> r[i]=RR; AMONG_RANKS } \
/* (18) */ :: d_step { r[i]==RP && stop[i] && (!THERE(i) || OWN(i)!=IR) -> r[i]=RR; AMONG_RANKS } \
/* (22) */ :: d_step { r[i]==RE && SETTLED(i) -> COMES(i); AMONG_RANKS } \
/* (23) */ :: d_step { r[i]==RT && (SETTLED(i) || STOPS_HERE(i)) -> \
                JUDGED(i); BEGUN(i); r[i]=RK; AMONG_RANKS } \
/* (25) */ :: d_step { r[i]==RC && THERE(i) && (OWN(i)==IR || OWN(i)==IX) -> \
                rev[i]=0; r[i]=RR; AMONG_RANKS } \
/* (26) */ :: d_step { r[i]==RC && SHOWS_NONE(i) && !rev[i] -> \
                OWN(i)=I0; NOT_STARTED(i); r[i]=RK; AMONG_RANKS } \
           :: d_step { r[i]==RC && SHOWS_NONE(i) && rev[i] -> \
                OWN(i)=I0; NOT_STARTED(i); r[i]=RF; AMONG_RANKS } \
/* (28) */ :: d_step { r[i]==RK && stop[i] && STOPS_NOW(i) -> BAD(i); r[i]=RX; AMONG_RANKS } \
/* (30) */ :: d_step { LOST_WITH_NODE(i) && REMEMBERED(i) -> unf[i]=!dead[at[i]]; r[i]=RL; AMONG_RANKS } \
/* (31) */ :: d_step { unf[i] && dead[at[i]] -> unf[i]=0 } \
/* (32) */ :: d_step { r[i]==RL && THERE(i) && OWN(i)==IR && k[i]>fence[i] && RETURNS(i) -> \
                unf[i]=0; r[i]=RR; AMONG_RANKS }

/* (31), the order for a proof, (34).  A lost job whose removed node is back needs a proof, too. */
#ifdef V_UNFENCED_STAYS            /* only the operator's word ends `unfenced` where the instance has ended */
#define NEEDS_PROOF(i,n) UNP(i,n)
#else
#define NEEDS_PROOF(i,n) (UNP(i,n) || (unf[i] && at[i]==(n)))
#endif
#define NOT_STARTED_THERE(i,n,j) if :: I(i,n,j)==IO && (j)<=UP_TO(i) -> I(i,n,j)=I0 :: else fi
#define PROOFS(i,n) \
:: d_step { dead[n] && UNP(i,n) -> UNP(i,n)=0 } \
:: d_step { NEEDS_PROOF(i,n) && conn[n] && !SHOWS(i,n) && ANS(i,n)==0 -> \
     ANS(i,n)=UP_TO(i)+1; DO_J(NOT_STARTED_THERE,i,n) } \
:: d_step { conn[n] && NEEDS_PROOF(i,n) && ANSWERED(i,n) && !SHOWS(i,n) -> \
     ANS(i,n)=0; UNP(i,n)=0; if :: at[i]==(n) -> unf[i]=0 :: else fi } \
:: d_step { ANS(i,n)!=0 && !(NEEDS_PROOF(i,n) && ANSWERED(i,n) && !SHOWS(i,n)) -> ANS(i,n)=0 }

/* Orders that are due.  An order to end is carried out at once: a late one is one that is given late. */
#ifdef V_REMOVED_RUNS_ON           /* no order ends an instance of a removed job that turns up */
#define REMOVED_JOB(i) 0
#else
#define REMOVED_JOB(i) (r[i]==RG)
#endif
#define STARTS(i) \
:: d_step { r[i]==RS && THERE(i) && OWN(i)==I0 && !stop[i] -> OWN(i)=IO } \
:: d_step { r[i]==RC && THERE(i) && OWN(i)==I0 -> OWN(i)=IO } \
:: d_step { r[i]==RP && THERE(i) && OWN(i)==IR && !snap[i] && !stop[i] -> snap[i]=1 }
#define END(i,n,j) \
:: d_step { conn[n] && I(i,n,j)==IR && ((r[i]!=RG && (j)<=fence[i]) \
     || (stop[i] && !OPERATION(i) && !OPEN_ANY) \
     || (stop[i] && mv[i]==MC && (n)==at[i] && !conn[1-(n)]) || REMOVED_JOB(i)) -> ENDS(i,n,j) }

/* I1: no two instances above the fence.  I3: each is the own one, fenced, unproven or unfenced. */
#define ABOVE(i,n,j) (STARTS_OR_RUNS(i,n,j) && (j)>fence[i])
#define I1(i) (sumNJ(ABOVE,i)<=1)
#define HAS_OWN(i) (r[i]==RS || r[i]==RR || r[i]==RP || r[i]==RC)
#define UNACCOUNTED(i,n,j) (STARTS_OR_RUNS(i,n,j) && (j)>fence[i] \
  && !(HAS_OWN(i) && (j)==k[i] && (n)==at[i]) && !UNP(i,n) && !(unf[i] && (n)==at[i]) && mv[i]!=MT)
#define I3_HOLDS(i) (r[i]==RG || !anyNJ(UNACCOUNTED,i))
/* I4: a stop that was accepted stands in the row until a user restores the job */
#define I4(i) (!told[i] || stop[i])
#ifdef FORGET
#define SAFE 1
#else
#define SAFE (allR(I1) && allR(I3_HOLDS) && allR(I4) && SETTLED_AMONG_RANKS)
#endif
#if NR>1
#define SETTLED_AMONG_RANKS (!MUST_STOP(0,1) && !MUST_STOP(1,0) && !MUST_REST(0,1) && !MUST_REST(1,0))
#else
#define SETTLED_AMONG_RANKS 1
#endif

/* I5, and I4's end: each rank is at rest, or waits for a node that is away.  An open move holds up ends. */
#define TURNED_UP(i,n,j) (conn[n] && I(i,n,j)==IR && ((j)<=fence[i] || r[i]==RG))
#define DOUBTS_LEFT(i,n) ((UNP(i,n) || (unf[i] && at[i]==(n))) && conn[n])
#define RUNS_ON(i) (r[i]==RR && THERE(i) && OWN(i)==IR && !stop[i] && !OPEN(i))
#define MOVE_WAITS (OPEN_ANY && !(conn[0] && conn[1]))
#define WAITS(i) ((HAS_OWN(i) && !THERE(i) && !LOST_WITH_NODE(i)) || (ENDING(i) && !gone[i] && !THERE(i)) \
  || (ENDING(i) && !stop[i] && anyN(UNPROVEN_AWAY,i)) || MOVE_WAITS)
#define RESTS_WELL(i) (r[i]==R0 || r[i]==RG || ENDED(i) || (r[i]==RK && !stop[i]))
#define GOAL(i) (!anyNJ(TURNED_UP,i) && (MOVE_WAITS || !anyN(DOUBTS_LEFT,i)) \
  && (RUNS_ON(i) || RESTS_WELL(i) || WAITS(i)) \
  && !(stop[i] && OPEN(i) && OWN(i)==IR && THERE(i)))
#if NR>1
/* I9: no rank runs on beside one that has failed, that rests, or that was never there */
#define APART(i,o) ((RUNS_ON(i) || r[i]==RK) && (FAILED(o) || (RUNS_ON(i) && r[o]==RK) || r[o]==R0))
#define okgoal (allR(GOAL) && (MOVE_WAITS || (!APART(0,1) && !APART(1,0))))
#else
#define okgoal allR(GOAL)
#endif

#ifndef REACHED
#define REACHED
#endif

#ifdef FORGET                      /* the older copy is made at any time, and comes back at any later one */
#define LATER(i,n,j) (conn[n] && !OPERATION(i) && I(i,n,j)==IR && (j)>fence[i] && (j)>k[i])
#define GOES_ON_AT(i,n,j) JUDGED(i); k[i]=(j); at[i]=(n); unf[i]=0; rev[i]=0
#define TAKES_IN(i,n,j) \
/*  (3) */ :: d_step { forgot && r[i]==R0 && conn[n] && I(i,n,j)==IR -> GOES_ON_AT(i,n,j); r[i]=RR } \
           :: d_step { forgot && r[i]==R0 && conn[n] && I(i,n,j)==IO -> GOES_ON_AT(i,n,j); r[i]=RS } \
/* (33) */ :: d_step { forgot && r[i]!=R0 && r[i]!=RG && LATER(i,n,j) -> \
                GOES_ON_AT(i,n,j); if :: r[i]!=RR -> r[i]=RR :: else fi }
#define FORGETS \
:: d_step { !stable && !kept && r[0]!=R0 -> kept=1; o_r=r[0]; o_k=k[0]; o_at=at[0]; o_fence=fence[0]; \
     o_stop=stop[0]; o_gone=gone[0]; o_to=to[0]; o_unp0=unp[0]; o_unp1=unp[1]; o_unf=unf[0]; o_rev=rev[0] } \
:: d_step { !stable && !forgot && r[0]!=R0 && mv[0]==M0 -> forgot=1; kept=1; \
     conn[0]=0; conn[1]=0; DO_R(NO_ANSWER_0); DO_R(NO_ANSWER_1); snap[0]=0; \
     r[0]=o_r; k[0]=o_k; at[0]=o_at; fence[0]=o_fence; \
     stop[0]=o_stop; gone[0]=o_gone; to[0]=o_to; unp[0]=o_unp0; unp[1]=o_unp1; unf[0]=o_unf; rev[0]=o_rev; \
     o_r=0; o_k=0; o_at=0; o_fence=0; \
     o_stop=0; o_gone=0; o_to=0; o_unp0=0; o_unp1=0; o_unf=0; o_rev=0 }
#else
#define TAKES_IN(i,n,j)
#define FORGETS
#endif

active proctype Coordinator() {
  do
  EACH_R(FACTS)
  EACH_RN(PROOFS)
  EACH_R(STARTS)
  EACH_RNJ(END)
  EACH_RNJ(TAKES_IN)
  FORGETS
#ifdef V_STOP_AFTER_RECORD
  :: d_step { begun[0] && !stable -> begun[0]=0 }                     /* the coordinator restarts */
#endif
  REACHED
#ifndef LIVE
  :: d_step { !(SAFE) -> assert(false) }
#endif
  od
}

#ifdef LIVE
/* (<> stable) -> (<> [] okgoal); spin does not take a formula of that length */
never {
any:
  if :: true -> goto any :: stable && !(okgoal) -> goto accept_not_yet fi;
accept_not_yet:
  if :: true -> goto later fi;
later:
  if :: true -> goto later :: !(okgoal) -> goto accept_not_yet fi
}
#endif
