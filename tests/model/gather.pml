/* SPDX-License-Identifier: Apache-2.0
 * How the ranks of a gang agree on a common step without a collective (docs/adr/0038).  N ranks, moved ones and bystanders alike,
 * and the coordinator C.  A rank counts its barriers in a page; its keeper writes stop_at there; the rank holds where its count has
 * reached stop_at.  C picks stop_at, raises it, and declares the ranks held at step v.
 *
 * A rank that has counted a barrier either holds there or goes on: two steps, since stop_at may be written between them.  The program
 * couples the ranks: one can finish a step only once the others have passed the barrier SKEW-1 steps before it (a collective in each
 * step is SKEW=1).
 *
 * Messages.  STOP(a,v) of attempt a is delivered to each keeper at any later time, any number of times, in any order.  What C reads of
 * a page it reads late or at once: counts only grow, and C keeps the highest.  Messages that are lost are sent again, so that each is
 * delivered in the end.  They are slower than at most MAX steps of a rank.  With -DCRASH C crashes once; it keeps
 * the number of its attempt only.
 *
 * Every step raises something, so that each run is finite, and "it ends" needs no fairness: from some moment on (calm) no rank is lost
 * and C does not crash.
 *
 * -DV_xxx: deliberately broken variants, each must be caught.
 */
#ifndef LEAD
#define LEAD 1            /* how far stop_at is ahead of the highest count; it may differ from attempt to attempt */
#endif
#ifndef FIRST_LEAD
#define FIRST_LEAD LEAD
#endif
#ifndef SKEW
#define SKEW 1
#endif
#ifndef MAX
#define MAX 3             /* barriers that a rank may pass before the first stop_at arrives anywhere */
#endif
#ifndef N
#define N 3               /* ranks: 2 or 3 */
#endif
#if N==3
#define THIRD(x) x
#define all(p) (p(0) && p(1) && p(2))
#else
#define THIRD(x)
#define all(p) (p(0) && p(1))
#endif
#define INF 15
#define LAST 9            /* the highest step that may be asked for */

/* rank */
#define RUN 0   /* past barrier cnt */
#define ARR 1   /* has counted barrier cnt, and has not read stop_at */
#define HELD 2  /* holds at barrier cnt */
#define LOST 3  /* has ended, hangs, or its node is lost */
/* C */
#define ASK 0   /* asks for counts */
#define STOPS 1 /* has chosen v */
#define DONE 2  /* all ranks are held at v */
#define OUT 3   /* gave up: all ranks go on */

byte cnt[3], pos[3], stop[3];
byte att[3];                       /* the attempt that the keeper obeys; an older one is refused */
bit sure[3];                       /* the rank holds at v or before: its keeper read a count below stop_at after it had written
                                    * stop_at, or C has raised v for it */
#ifdef V_NO_FENCE
bit goes[3];
#endif
#ifdef V_LATE_STOP
bit told[3];
#endif
byte phase, a, hi, v;
bit seen[3], holds[3];
bit sent[32];                      /* a*16+v */
bit lost, crashed, calm;            /* calm: no more faults (LIVE only) */
#ifdef CRASH
#define CRASHED crashed
#else
#define CRASHED 0
#endif
#ifdef REACH
byte raised;                       /* how often v was chosen: at first, and once for each rank at most */
#define HIST(x) x
#else
#define HIST(x) skip
#endif

#define P(j) ((pos[j]==RUN || pos[j]==LOST) -> cnt[j] : PASSED_UNSEEN(j))
#ifdef V_NO_FENCE                  /* the rank reads stop_at before its count is visible */
#define PASSED_UNSEEN(j) ((pos[j]==ARR) -> (cnt[j]+goes[j]) : (cnt[j]-1))
#else
#define PASSED_UNSEEN(j) (cnt[j]-1)
#endif
#define FOLLOWED(i) (P(0)+SKEW>cnt[i] && P(1)+SKEW>cnt[i] THIRD(&& P(2)+SKEW>cnt[i]))
#define NO_STOP(j) (stop[j]==INF)
#define FREE_RUN(i) (cnt[i]<MAX || !all(NO_STOP))

#ifdef V_NO_FENCE
#define ARRIVES(i) \
:: d_step { pos[i]==RUN && FOLLOWED(i) && FREE_RUN(i) -> pos[i]=ARR; goes[i]=(cnt[i]+1<stop[i]) } \
:: d_step { pos[i]==ARR -> cnt[i]++; if :: goes[i] -> pos[i]=RUN :: else -> pos[i]=HELD fi; goes[i]=0 }
#else
#define ARRIVES(i) \
:: d_step { pos[i]==RUN && FOLLOWED(i) && FREE_RUN(i) -> pos[i]=ARR; cnt[i]++ } \
:: d_step { pos[i]==ARR -> if :: cnt[i]<stop[i] -> pos[i]=RUN :: else -> pos[i]=HELD fi }
#endif

#define RANK(i) \
ARRIVES(i) \
:: d_step { pos[i]==HELD && cnt[i]<stop[i] -> pos[i]=RUN } \
:: d_step { pos[i]!=LOST && !lost && !calm && (phase==ASK || phase==STOPS) -> pos[i]=LOST; lost=1 }

#ifdef V_LOWERED                   /* the keeper writes what arrives, also a lower step; each message arrives once */
bit got[48];
#define HIGHER(i,x) (!got[i*16+x])
#define TAKEN(i,x) got[i*16+x]=1
#else
#define HIGHER(i,x) (stop[i]==INF || stop[i]<x)
#define TAKEN(i,x) skip
#endif
#ifdef V_OLD_STOP                  /* a STOP is obeyed however old its attempt is */
#define OBEYED(i,b) 1
#define ATT(i,b) att[i]=((att[i]>b) -> att[i] : b)
#else
#define OBEYED(i,b) (att[i]<=b)
#define ATT(i,b) att[i]=b
#endif
/* the keeper: writes stop_at, then reads the count */
#define TAKE(i,b,x) \
:: d_step { pos[i]!=LOST && sent[b*16+x] && OBEYED(i,b) && (att[i]<b || HIGHER(i,x)) -> \
     ATT(i,b); if :: HIGHER(i,x) -> stop[i]=x; sure[i]=(sure[i] || cnt[i]<x); TAKEN(i,x) :: else fi }
#define TAKE3(b,x) TAKE(0,b,x) TAKE(1,b,x) THIRD(TAKE(2,b,x))
#define TAKES(b) TAKE3(b,1) TAKE3(b,2) TAKE3(b,3) TAKE3(b,4) TAKE3(b,5) TAKE3(b,6) TAKE3(b,7) TAKE3(b,8) TAKE3(b,9)

/* a rank that had counted barrier v before its keeper wrote a stop_at may be past it, and holds at the next */
#ifdef V_RAISED_WHEN_COUNTED       /* raised only once a rank is seen to have counted a later barrier */
#define BEYOND(i) (!sure[i] && cnt[i]>v)
#else
#define BEYOND(i) (!sure[i] && cnt[i]>=v)
#endif
#ifdef V_NOT_RAISED
#define RAISES 0
#else
#define RAISES 1
#endif
#ifdef V_HELD_ANYWHERE             /* HELD counts, whatever its step is */
#define AT_V(i) 1
#else
#define AT_V(i) (cnt[i]==v)
#endif

#define NEW_V(x) v=x; assert(v<=LAST); sent[a*16+v]=1; holds[0]=0; holds[1]=0; holds[2]=0; HIST(raised++); HIST(assert(CRASHED || raised<=N+1))
#define NONE_SEEN seen[0]=0; seen[1]=0; seen[2]=0; holds[0]=0; holds[1]=0; holds[2]=0

#define AHEAD ((a==0) -> FIRST_LEAD : LEAD)

#define ABOUT(i) \
:: d_step { phase==ASK && !seen[i] && pos[i]!=LOST -> seen[i]=1; \
     if :: cnt[i]+AHEAD>hi -> hi=cnt[i]+AHEAD :: else fi; if :: stop[i]!=INF && stop[i]>hi -> hi=stop[i] :: else fi } \
:: d_step { phase==STOPS && RAISES && att[i]==a && pos[i]!=LOST && stop[i]!=INF && stop[i]>v -> NEW_V(stop[i]) } \
:: d_step { phase==STOPS && RAISES && att[i]==a && pos[i]==HELD && cnt[i]>v -> NEW_V(cnt[i]) } \
:: d_step { phase==STOPS && RAISES && att[i]==a && pos[i]!=LOST && pos[i]!=HELD && stop[i]!=INF && BEYOND(i) -> sure[i]=1; NEW_V(cnt[i]+1) } \
:: d_step { phase==STOPS && att[i]==a && pos[i]==HELD && AT_V(i) && !holds[i] -> holds[i]=1 } \
:: d_step { phase==OUT && pos[i]!=LOST && !TOLD(i) -> stop[i]=INF; ATT_OUT(i) }

#ifdef V_LATE_STOP                 /* a keeper that was told to go on obeys a STOP of the same attempt that comes later */
#define TOLD(i) told[i]
#define ATT_OUT(i) told[i]=1
#else
#define TOLD(i) (att[i]>a)
#define ATT_OUT(i) att[i]=a+1      /* a later STOP of this attempt is refused */
#endif

#ifdef IMPATIENT
#define GIVES_UP 1
#else
#define GIVES_UP lost
#endif

/* a rank that is lost while it is held is the gang commit's concern */
#define AT_STEP(i) ((pos[i]==HELD || pos[i]==LOST) && cnt[i]==v)
#define ALL_HELD all(AT_STEP)
#define ON(i) (pos[i]==RUN || pos[i]==LOST)
#define okgoal ((phase==DONE && ALL_HELD) || (phase==OUT && all(ON)))
#define SEEN(i) seen[i]
#define HOLDS(i) holds[i]
#define SAFE (phase!=DONE || ALL_HELD)

#ifndef REACHED
#define REACHED
#endif

active proctype Q() {
  d_step { stop[0]=INF; stop[1]=INF; stop[2]=INF; a=0 }
  do
  RANK(0) RANK(1) THIRD(RANK(2))
  TAKES(0)
#ifdef CRASH
  TAKES(1)
#endif
  ABOUT(0) ABOUT(1) THIRD(ABOUT(2))
  :: d_step { phase==ASK && all(SEEN) -> phase=STOPS; NEW_V(hi); hi=0; seen[0]=0; seen[1]=0; seen[2]=0 }
  :: d_step { phase==STOPS && all(HOLDS) -> phase=DONE }
  :: d_step { (phase==ASK || phase==STOPS) && GIVES_UP -> phase=OUT; hi=0; v=0; NONE_SEEN }
#ifdef CRASH
  :: d_step { phase!=DONE && !crashed && !calm -> crashed=1; phase=ASK; a=1; hi=0; v=0; NONE_SEEN }
#endif
  REACHED
#ifdef LIVE
  :: d_step { !calm -> calm=1 }
#else
  :: d_step { !(SAFE) -> assert(false) }
#endif
  od
}

#ifdef LIVE
ltl live { (<> calm) -> (<> [] okgoal) }
#endif
